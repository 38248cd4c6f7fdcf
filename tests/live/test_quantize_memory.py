"""Memory of quantizing: the bound that docs/quantization.md states, and weights kept on disk."""

from __future__ import annotations

import json
import os
import shutil
import struct
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from benchmarks.bf16_model import bf16_like
from packager.cli.wiring.builds import services_for
from packager.cli.wiring.settings import Settings
from packager.core.recipe import Step
from packager.core.request import BuildRequest
from packager.pipeline import pipeline
from tests.support.cases import read_tables
from tests.support.commandline import TINY
from tests.support.doubles.models import llama_tensors
from tests.support.places import ROOT

pytestmark = [pytest.mark.live, pytest.mark.timeout(1500)]

MEMORY = ROOT / "containers/tools/llmcompressor"
FAULTS = """
import resource, sys
import torch
sys.path.insert(0, sys.argv[1])
import memory
if sys.argv[2] != "usual":
    getattr(memory, sys.argv[2])()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for number in range((10 << 26) // int(sys.argv[3])):
    torch.empty(int(sys.argv[3]), dtype=torch.uint8).fill_(number)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
LARGE: Mapping[str, Any] = read_tables(__file__)["large"]


def test_a_model_of_a_gigabyte_stays_within_the_bound_and_the_bound_is_honest(
    tmp_path: Path,
) -> None:
    size = write_model(tmp_path / "large")
    step = step_of(tmp_path / "large", "fp8")
    into = tmp_path / "into"
    into.mkdir()

    result = executor().run(step, into)

    assert size > 1_000_000_000
    assert step.needs.memory_bytes / 1.25 < result.peak_memory_bytes <= step.needs.memory_bytes


@pytest.mark.parametrize(
    ("reuse", "size", "least"),
    [("reuse_freed_memory", 1 << 26, 10_000), ("reuse_small_tensors", 1 << 22, 1_000)],
    ids=["large", "small"],
)
def test_memory_of_a_tensor_that_was_freed_serves_the_next_one(
    quantizing_python: Path, reuse: str, size: int, least: int
) -> None:
    """640 MiB of tensors, one after the other: one's pages are zeroed, or those of all.

    Of those that reuse memory some may find another place: three of 64 MiB were zeroed once.
    """
    env = {**os.environ, "MALLOC_MMAP_THRESHOLD_": str(1 << 20)}  # as the executor has it
    faults = [
        int(subprocess.run([quantizing_python, "-c", FAULTS, str(MEMORY), how, str(size)], env=env,
                           check=True, capture_output=True, text=True).stdout.splitlines()[-1])
        for how in (reuse, "usual")
    ]  # fmt: skip

    assert least < faults[0] < 80_000 < 160_000 < faults[1]


def executor() -> Any:
    return services_for(Settings()).executor


def step_of(model: Path, method: str, **asked: Any) -> Step:
    request = BuildRequest(model=str(model), instance="local", quantize=method, **asked)
    tools = services_for(Settings())
    tools.executor.prepare("llmcompressor")
    [step] = pipeline.plan(request, tools).recipe.steps
    return step


def write_model(place: Path) -> int:
    """Write a Llama with random weights that are distributed like trained ones."""
    place.mkdir()
    shapes = llama_tensors(
        layers=LARGE["num_hidden_layers"],
        hidden_size=LARGE["hidden_size"],
        intermediate_size=LARGE["intermediate_size"],
        kv_size=LARGE["num_key_value_heads"] * LARGE["head_dim"],
        vocab_size=LARGE["vocab_size"],
    )
    header: dict[str, dict[str, Any]] = {}
    end = 0
    for name, (dtype, shape) in shapes.items():
        begin, end = end, end + 2 * shape[0] * (shape[1] if len(shape) > 1 else 1)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    with (place / "model.safetensors").open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for told in header.values():
            begin, end = told["data_offsets"]
            file.write(bf16_like(end - begin))
    (place / "config.json").write_text(json.dumps(LARGE))
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(TINY / name, place / name)
    return end

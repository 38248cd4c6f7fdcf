"""What a stream takes: memory whatever a tensor's size, and of the disk nothing for weights.

With `PACKAGER_SERVE=all` the tensor has 20 GB.
"""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import OWN_PLACES, need
from tests.live.test_huge_file import DiscardingRegistry
from tests.support.doubles.fake_hub import FakeHub
from tests.support.doubles.models import (
    fill_with_numbers,
    llama_tensors,
    safetensors_bytes,
    write_model,
)
from tests.support.doubles.registry import FakeRegistry

pytestmark = [pytest.mark.live, pytest.mark.timeout(3600)]

LONG = os.environ.get("PACKAGER_SERVE") == "all"
GB = 20 if LONG else 2  # of one tensor
MOST_BYTES = 1 << 30  # of memory
SHARD = 5 * 10**9
BUILD = ("--instance", "ml.p5.48xlarge", "--base", "scratch", "--family", "vllm", "--quiet")
WRITES = "write,pwrite64,writev,pwritev,pwritev2,copy_file_range,sendfile,splice,sendto,sendmsg"
CALL = re.compile(r"(\w+)\((\d+)<([^>]*)>.* = (\d+)$")


def environment(place: Path, **more: str) -> dict[str, str]:
    own = {name: str(place / folder) for name, folder in OWN_PLACES.items()}
    # A checkout that is imported for the first time would write what Python compiles.
    return {**os.environ, **own, "TMPDIR": str(place), "PYTHONDONTWRITEBYTECODE": "1", **more}


def run(*command: str, env: Mapping[str, str]) -> tuple[str, int]:
    """Run a command, which must succeed; return what it printed and its peak of memory."""
    process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    printed = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return printed, usage.ru_maxrss * 1024


def packager(*arguments: str) -> tuple[str, ...]:
    return (sys.executable, "-m", "packager", *arguments)


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[FakeHub]:
    model = write_model(tmp_path / "upstream", hidden_size=512, intermediate_size=1024)
    fill_with_numbers(model)
    with FakeHub() as served:
        served.add("acme/tiny", model)
        yield served


@pytest.mark.parametrize("method", ["fp8", "nvfp4"])
def test_from_a_hub_to_a_registry_no_weights_are_written_to_the_disk(
    hub: FakeHub, tmp_path: Path, method: str
) -> None:
    traces = tmp_path / "traces"
    traces.mkdir()
    own = {"HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / "hf"), "HF_TOKEN": hub.token}
    command = packager("build", "--model", "hf://acme/tiny", "--quantize", method, *BUILD)

    with FakeRegistry() as registry:
        run(
            # A file for each thread: their calls would stand in halves, one between another's.
            *(need("strace"), "-ff", "-qq", "-y", "-s", "0", "-o", str(traces / "of")),
            *(f"--trace={WRITES}", *command, "--output", f"{registry.host}/acme/tiny:1"),
            env=environment(tmp_path / "own", **own),
        )
        sent = sum(len(blob) for blob in registry.blobs.values())

    written = {"files": 0, "indexes": 0, "others": 0}
    lines = (one for of in traces.iterdir() for one in of.read_text(errors="replace").splitlines())
    for line in lines:
        if found := CALL.match(line):
            is_file = found[3].startswith("/") and not found[3].startswith(("/dev/", "/proc/"))
            kind = "indexes" if ".sqlite" in found[3] else "files"  # as often as threads commit
            written[kind if is_file else "others"] += int(found[4])
    assert sent > 3_000_000
    assert written["others"] > sent  # the trace has what was sent
    assert written["files"] < 50_000  # records, digests, an entry
    assert written["indexes"] < sent / 4


def test_a_tensor_larger_than_memory_passes(tmp_path: Path) -> None:
    columns = 8192
    rows = GB * 10**9 // 2 // columns
    model = write_model(tmp_path / "model", shards=1, layers=1, config={"hidden_size": columns})
    entry = {"dtype": "BF16", "shape": [rows, columns], "data_offsets": [0, rows * columns * 2]}
    hole(model / "model.safetensors", {"model.layers.0.mlp.up_proj.weight": entry})
    asked = ("build", "--model", str(model), "--quantize", "fp8", *BUILD, "--format", "json")

    with DiscardingRegistry() as registry:
        printed, peak = run(
            *packager(*asked, "--max-total-tokens", "256", "--output", f"{registry.host}/a:1"),
            env=environment(tmp_path / "own"),
        )

    sizes = [layer["size"] for layer in json.loads(printed)["layers"]]
    assert max(sizes) >= rows * columns
    assert peak < MOST_BYTES


def test_405_billion_parameters_are_planned_from_headers(tmp_path: Path) -> None:
    model = write_405b(tmp_path / "model")
    asked = ("build", "--dry-run", "--model", str(model), "--quantize", "fp8", *BUILD)

    printed, peak = run(
        *packager(*asked, "--format", "json", "--output", f"oci:{tmp_path}/out"),
        env=environment(tmp_path / "own"),
    )

    document = json.loads(printed)
    layers = [layer["size"] for layer in document["layers"] if layer["role"] == "weights"]
    assert document["steps"] == []
    assert 405e9 < sum(layers) < 420e9
    assert peak < MOST_BYTES
    assert not (tmp_path / "out").exists()


def hole(path: Path, header: Mapping[str, Mapping[str, Any]]) -> None:
    """Write a header; the tensors are a hole."""
    framed = safetensors_bytes(header)
    with path.open("wb") as file:
        file.write(framed)
        file.truncate(len(framed) + max(one["data_offsets"][1] for one in header.values()))


def write_405b(place: Path) -> Path:
    """Write the shapes of Llama 3.1 405B, in holes of 810 GB."""
    sizes = {"num_hidden_layers": 126, "hidden_size": 16384, "intermediate_size": 53248}
    heads = {"num_attention_heads": 128, "num_key_value_heads": 8, "vocab_size": 128256}
    write_model(place, shards=1, config={**sizes, **heads, "max_position_embeddings": 131072})
    (place / "model.safetensors").unlink()
    tensors = llama_tensors(
        layers=126,
        hidden_size=16384,
        intermediate_size=53248,
        kv_size=1024,
        vocab_size=128256,
    )
    shards: list[dict[str, dict[str, Any]]] = [{}]
    end = 0
    for name, (dtype, shape) in tensors.items():
        size = 2 * math.prod(shape)
        if end + size > SHARD:
            shards.append({})
            end = 0
        told = {"dtype": dtype, "shape": list(shape), "data_offsets": [end, end + size]}
        shards[-1][name] = told
        end += size
    weight_map: dict[str, str] = {}
    for number, header in enumerate(shards, 1):
        path = f"model-{number:05}-of-{len(shards):05}.safetensors"
        hole(place / path, header)
        weight_map |= dict.fromkeys(header, path)
    index = {"metadata": {}, "weight_map": weight_map}
    (place / "model.safetensors.index.json").write_text(json.dumps(index))
    return place

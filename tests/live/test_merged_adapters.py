"""Merged weights are those of PEFT's `merge_and_unload`: many architectures, three types.

No element is farther than one step of its type, as wide as at the larger of its two summands, and
999 of 1,000 of those that an adapter changes are equal.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from packager.core.image import Blob
from packager.core.model import ModelFile, ModelFiles
from packager.images.blobs import BlobReader
from packager.models.adapters.read import adapter_of
from packager.models.local import LocalSource
from packager.models.reference import parse_model_reference
from packager.models.safetensors import read_weights_header
from packager.optimize.merge.files import merged_files
from tests.live.tool_programs import documents_in
from tests.support.cases import read_tables
from tests.support.vllm_packages import peft_site, run_beside

pytestmark = [pytest.mark.live, pytest.mark.timeout(7200)]

CORPUS = read_tables(__file__)
CASES: Mapping[str, Any] = CORPUS["cases"]
MANTISSA = {"BF16": 7, "F16": 10, "F32": 23}
WIDE = "X86_V4 AVX512_ICL AVX512_SPR"  # as NumPy names what has AVX-512
WIDER = f"X86_V3 {WIDE}"  # and AVX2
Tensors = dict[str, tuple[str, "np.ndarray[Any, Any]"]]


@pytest.fixture(scope="module")
def made(serving_base: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make the models, and let PEFT make and merge the adapters."""
    del serving_base
    place = tmp_path_factory.mktemp("merged")
    site = peft_site()
    run_beside(site, "tiny_architectures.py", str(place / "models"), *bases())
    (place / "cases.json").write_text(json.dumps(list(cases())))
    told = run_beside(site, "peft_adapters.py", *(str(place / name) for name in FILES))
    assert [one for one in documents_in(told) if "failed" in one] == []
    return place


FILES = ("cases.json", "models", "adapters")


def bases() -> list[str]:
    return list(dict.fromkeys(case["base"] for case in CASES.values()))


def cases() -> Iterator[dict[str, Any]]:
    """Yield the cases with the lists that they name."""
    for name, case in CASES.items():
        lists = {"attention": CORPUS["attention"], "experts": CORPUS["experts"]}
        config = {
            key: lists.get(value, value) if isinstance(value, str) else value
            for key, value in case["config"].items()
        }
        yield {"name": name, "merge": True, **case, "config": config}


@pytest.mark.parametrize("name", CASES)
def test_each_element_is_that_of_peft_or_one_step_beside_it(made: Path, name: str) -> None:
    base = made / "models" / CASES[name]["base"]
    model = LocalSource().facts(parse_model_reference(str(base)))
    found: Tensors = {}
    for weights in merged_weights(model, made / "adapters" / name):
        found |= numbers(weights)
    before, expected = read(base), read(made / "adapters" / f"{name}.merged")

    assert found.keys() == before.keys()
    assert expected.keys() <= found.keys()
    changed = equal = 0
    for tensor, (dtype, own) in found.items():
        old = before[tensor][1]
        theirs = expected[tensor][1] if tensor in expected else old  # of a layer that only drafts
        largest = np.maximum(np.maximum(np.abs(old), np.abs(theirs)), np.abs(theirs - old))
        step = 2.0 ** (np.floor(np.log2(np.maximum(largest, 1e-30))) - MANTISSA[dtype])
        assert (np.abs(own - theirs) <= step).all(), tensor
        assert (own == old).all() == (theirs == old).all(), tensor
        is_changed = (own != old) | (theirs != old)
        changed += int(is_changed.sum())
        equal += int((own == theirs)[is_changed].sum())
    assert changed
    assert equal / changed >= 0.999


def test_the_digest_is_the_same_without_the_processors_wide_registers(made: Path) -> None:
    places = [(made / "models" / CASES[name]["base"], made / "adapters" / name) for name in CASES]
    assert len({base for base, _ in places}) >= 10
    words = [sys.executable, "-m", __name__, *(str(place) for pair in places for place in pair)]
    said = {
        subprocess.run(words, env=os.environ | narrow, check=True, capture_output=True).stdout
        for narrow in ({}, {"NPY_DISABLE_CPU_FEATURES": WIDE}, {"NPY_DISABLE_CPU_FEATURES": WIDER})
    }
    assert len(said) == 1
    assert len(said.pop().split()) == len(places)


def merged_weights(model: ModelFiles, adapter: Path) -> Iterator[bytes]:
    """Yield the files of weights with an adapter folded in."""
    reference = parse_model_reference(str(adapter))
    found = adapter_of("sql", LocalSource(is_adapter=True).facts(reference))
    reader = BlobReader()
    merged = merged_files(model, found, lambda file: read_weights_header(file, reader.read))
    for file in merged.files:
        if file.role == "weights":
            yield reader.read(blob_of(file))


def main(*places: str) -> None:
    """Print a digest of each pair of base and adapter."""
    for base, adapter in zip(places[::2], places[1::2], strict=True):
        model = LocalSource().facts(parse_model_reference(base))
        digest = hashlib.sha256(b"".join(merged_weights(model, Path(adapter))))
        sys.stdout.write(f"{digest.hexdigest()}\n")


def blob_of(file: ModelFile) -> Blob:
    return file.content if isinstance(file.content, Blob) else Blob((file.content,))


def read(place: Path) -> Tensors:
    found: Tensors = {}
    for file in sorted(place.glob("*.safetensors")):
        found |= numbers(file.read_bytes())
    return found


def numbers(data: bytes) -> Tensors:
    """Return every tensor of a file as float64."""
    (length,) = struct.unpack("<Q", data[:8])
    found: Tensors = {}
    for name, told in json.loads(data[8 : 8 + length]).items():
        if name != "__metadata__":
            start, end = (8 + length + at for at in told["data_offsets"])
            found[name] = told["dtype"], widened(data[start:end], told["dtype"])
    return found


def widened(data: bytes, dtype: str) -> np.ndarray[Any, Any]:
    if dtype == "BF16":
        bits = np.frombuffer(data, "<u2").astype(np.uint32) << np.uint32(16)
        return bits.view(np.float32).astype(np.float64)
    return np.frombuffer(data, "<f2" if dtype == "F16" else "<f4").astype(np.float64)


if __name__ == "__main__":
    main(*sys.argv[1:])

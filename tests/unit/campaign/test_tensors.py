"""How the GPU campaign compares two checkpoints."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest

pytest.importorskip("numpy")

from benchmarks.campaign import tensors
from tests.support.cases import cases

SCALE = struct.pack("<4H", 0x3F80, 0x4000, 0x4040, 0x4080)  # 1, 2, 3, 4 in bfloat16


def checkpoint(place: Path, **values: tuple[str, tuple[int, ...], bytes]) -> Path:
    """Write a checkpoint of a file for each tensor."""
    place.mkdir()
    for name, (dtype, shape, data) in values.items():
        told = {f"layer.{name}": {"dtype": dtype, "shape": shape, "data_offsets": [0, len(data)]}}
        header = json.dumps({"__metadata__": {"format": "pt"}, **told}).encode()
        (place / f"{name}.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + data)
    return place


def test_packed_integers_are_counted_one_by_one(tmp_path: Path) -> None:
    one = checkpoint(tmp_path / "one", weight_packed=("I32", (2,), struct.pack("<2I", 0, 0)))
    other = checkpoint(
        tmp_path / "other", weight_packed=("I32", (2,), struct.pack("<2I", 0xE000000F, 0x20))
    )

    found = tensors.main(one, other)

    assert found["identical"] == 0
    assert found["kinds"]["weight_packed"]["equal_share"] == 13 / 16


def test_fp8_is_compared_by_its_bits_and_scales_by_value(tmp_path: Path) -> None:
    changed = struct.pack("<4H", 0x3F80, 0x4000, 0x4020, 0x4080)  # 1, 2, 2.5, 4
    one = checkpoint(
        tmp_path / "one",
        weight=("F8_E4M3", (4,), b"\x00\x7f\x80\x01"), weight_scale=("BF16", (4,), SCALE),
    )  # fmt: skip
    other = checkpoint(
        tmp_path / "other",
        weight=("F8_E4M3", (4,), b"\x00\x7f\x00\x01"), weight_scale=("BF16", (4,), changed),
    )  # fmt: skip

    kinds = tensors.main(one, other)["kinds"]

    assert kinds["weight"]["equal_share"] == 0.75
    assert kinds["weight_scale"]["equal_share"] == 0.75
    assert kinds["weight_scale"]["largest_relative"] == pytest.approx(1 / 6, abs=1e-6)


@cases("not_comparable")
def test_other_tensors_are_not_comparable(
    tmp_path: Path, other: dict[str, tuple[str, tuple[int, ...]]], told: str
) -> None:
    one = checkpoint(tmp_path / "one", weight_scale=("BF16", (4,), SCALE))
    scales = {name: (*described, SCALE) for name, described in other.items()}

    found = tensors.main(one, checkpoint(tmp_path / "other", **scales))

    assert not found["comparable"]
    assert len(found[told]) == 1

"""Checkpoints that arrive quantized, as a user plans with them."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from tests.support.commandline import Packager
from tests.support.headers import TINY
from tests.support.quantized import arriving, save

SCALES = "model.layers.1.mlp.up_proj.scales"
NAN, ZERO = struct.pack("<e", float("nan")), bytes(2)


@pytest.mark.parametrize(
    ("value", "said"), [(NAN, "1 scale is not finite"), (ZERO, "is 0 throughout")]
)
def test_a_bad_scale_is_named(packager: Packager, tmp_path: Path, value: bytes, said: str) -> None:
    model = save(arriving("awq"), tmp_path / "model", {SCALES: value * (2 * TINY_INNER)})

    done = packager("plan", "--model", str(model), "--instance", "ml.g5.xlarge", status=3)

    assert said in done.err
    assert SCALES in done.err


TINY_INNER = TINY["intermediate_size"]

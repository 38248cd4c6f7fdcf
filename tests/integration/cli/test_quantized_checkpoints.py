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


def test_a_sound_checkpoint_is_planned(packager: Packager, tmp_path: Path) -> None:
    model = save(arriving("awq"), tmp_path / "model")

    done = packager("plan", "--model", str(model), "--instance", "ml.g5.xlarge")

    assert (done.status, done.err) == (0, done.err)
    assert "quantization-" not in done.err


@pytest.mark.parametrize(
    ("value", "said"), [(NAN, "1 scale is not finite"), (ZERO, "is 0 throughout")]
)
def test_a_bad_scale_is_named(packager: Packager, tmp_path: Path, value: bytes, said: str) -> None:
    model = save(arriving("awq"), tmp_path / "model", {SCALES: value * (2 * TINY_INNER)})

    done = packager("plan", "--model", str(model), "--instance", "ml.g5.xlarge", status=3)

    assert said in done.err
    assert SCALES in done.err


def test_bitsandbytes_is_refused_for_a_vllm_without_it(packager: Packager, tmp_path: Path) -> None:
    model = save(arriving("bitsandbytes-4"), tmp_path / "model")
    asked = ("plan", "--model", str(model), "--instance", "ml.g5.xlarge", "--family", "vllm")

    refused = packager(*asked, "--container-version", "0.33.0", status=3)
    packager(*asked, "--container-version", "0.27.1", status=0)

    assert "the last version that has it is 0.27.1" in refused.err
    assert "--container-version 0.27.1" in refused.err


TINY_INNER = TINY["intermediate_size"]

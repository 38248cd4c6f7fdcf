"""The GPU campaign on the processor: its stages really quantize, and are not run twice."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.places import SCRIPTS

pytestmark = pytest.mark.live

STAGES = (
    "machine",
    "model",
    "quantize-fp8-static-device",
    "quantize-fp8-static-host",
    "compare-fp8-static",
)


def campaign(directory: Path) -> tuple[dict[str, Any], str]:
    done = subprocess.run(
        [
            sys.executable, str(SCRIPTS / "gpu-campaign"), "--cpu", "--methods", "fp8-static",
            "--directory", str(directory), "--only", ",".join((*STAGES, "estimates")),
        ],
        capture_output=True, text=True, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found, done.stderr


def test_a_campaign_quantizes_compares_and_is_not_run_twice(tmp_path: Path) -> None:
    first, _ = campaign(tmp_path)

    figures = {name: stage["figures"] for name, stage in first["stages"].items()}
    assert (first["done"], first["of"]) == (6, 6)
    assert figures["quantize-fp8-static-device"]["device"] == "cpu"
    assert figures["quantize-fp8-static-device"]["weight_bytes_after"] == 1_706_352
    told = figures["compare-fp8-static"]
    assert (told["tensors"], told["identical"]) == (95, 95)
    assert told["kinds"]["weight_scale"]["tensors"] == 28
    rows = [(row["stage"], row["step"]) for row in figures["estimates"]["rows"]]
    assert rows == [
        ("quantize-fp8-static-device", "quantize"),
        ("quantize-fp8-static-host", "quantize"),
    ]

    second, said = campaign(tmp_path)

    assert second["stages"] == first["stages"]
    assert said.splitlines() == [f"{name}: done before" for name in (*STAGES, "estimates")]

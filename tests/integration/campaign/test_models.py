"""The random models of the GPU campaign."""

from __future__ import annotations

from pathlib import Path

from benchmarks.campaign.models import write_model
from tests.support.commandline import Packager


def test_packager_reads_the_model(tmp_path: Path, packager: Packager) -> None:
    write_model(tmp_path, "tiny")

    asked = ("--instance", "ml.g6.12xlarge", "--family", "vllm", "--format", "json")

    profile = packager("plan", "--model", str(tmp_path), *asked).document["profile"]
    assert profile["parameters"] == 1_180_800
    assert (profile["layers"], profile["head_dim"]) == (4, 64)

"""Wheels that a machine with torch and without a network is given."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.campaign import wheels
from benchmarks.campaign.stages import Failure
from tests.support.commandline import packager_in


def distribution(site: Path, name: str, version: str) -> None:
    place = site / f"{name}-{version}.dist-info"
    place.mkdir(parents=True)
    (place / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")


def test_brought_tools_are_those_that_packager_takes(tmp_path: Path) -> None:
    site, torchs = tmp_path / "site", tmp_path / "site-packages"
    for name in ("llmcompressor", "compressed_tensors", "transformers", "speculators"):
        distribution(site, name, "9.8")
    distribution(torchs, "torch", "2.11.0+cu130")
    distribution(torchs, "transformers", "1.0")

    found = wheels.bring(site, tmp_path / "tools", (torchs,))

    assert found["torch"] == "2.11.0+cu130"
    assert found["transformers"] == "9.8"  # what was brought comes first
    told = {"PACKAGER_TOOLS": str(tmp_path / "tools"), "PACKAGER_ALLOW_UNHASHED": "1"}
    text = packager_in(tmp_path)("tools", "list", "--format", "json", env=told).out
    assert text.count("2.11.0+cu130") >= 4
    assert "not verified" in text


def test_a_python_without_torch_makes_no_tools(tmp_path: Path) -> None:
    distribution(tmp_path / "site", "llmcompressor", "0.14.0.1")

    with pytest.raises(Failure, match="llmcompressor lacks torch, "):
        wheels.bring(tmp_path / "site", tmp_path / "tools")

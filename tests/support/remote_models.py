"""Fixtures of builds whose model lies on a hub or in a bucket, with a disk that is watched.

A module that imports them has a fixture `model`: the directory that is served.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.buckets import server as server
from tests.support.commandline import Done, Packager
from tests.support.doubles.fake_hub import FakeHub
from tests.support.doubles.s3 import Bucket

TOKEN = "hf_canary"
BUILD = ("build", "--instance", "local", "--base", "scratch", "--quiet", "--format", "json")


@pytest.fixture
def hub(model: Path) -> Iterator[FakeHub]:
    with FakeHub(token=TOKEN) as served:
        served.add("acme/tiny", model)
        yield served


@pytest.fixture
def environment(hub: FakeHub, tmp_path: Path) -> dict[str, str]:
    """Every place that packager and its libraries may write to is below `disk`."""
    disk = tmp_path / "disk"
    disk.mkdir()
    return {
        "HF_ENDPOINT": hub.url,
        "HF_HOME": str(disk / "hf"),
        "HF_TOKEN": TOKEN,
        "XDG_STATE_HOME": str(disk / "state"),
        "TMPDIR": str(disk),
    }


@pytest.fixture
def bucket(server: str, model: Path, environment: dict[str, str]) -> Bucket:
    """A bucket with the model below `llama`."""
    bucket = Bucket(server)
    bucket.upload(model, "llama")
    environment |= bucket.environment
    return bucket


class Remote:
    """Commands that reach the hub and the bucket, and may write below `disk` alone."""

    def __init__(self, packager: Packager, environment: dict[str, str], root: Path) -> None:
        self.environment, self.root, self.disk = environment, root, root / "disk"
        self._packager = packager

    def run(self, *arguments: str, status: int = 0) -> Done:
        return self._packager(*arguments, env=self.environment, status=status)

    def build(self, model: str, output: str, *options: str, status: int = 0) -> Done:
        return self.run(*BUILD, "--model", model, "--output", output, *options, status=status)

    def record(self, model: str, output: str, *options: str) -> dict[str, Any]:
        """Build, and return the record."""
        found: dict[str, Any] = json.loads(self.build(model, output, *options).out)
        return found

    def weights_on_disk(self) -> list[Path]:
        return [path for path in self.disk.rglob("*") if "safetensors" in path.suffix]


@pytest.fixture
def remote(packager: Packager, environment: dict[str, str], tmp_path: Path) -> Remote:
    return Remote(packager, environment, tmp_path)

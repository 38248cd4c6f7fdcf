"""Fixtures of builds whose model lies on a hub or in a bucket, with a disk that is watched.

A module that imports them has a fixture `model`: the directory that is served.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.doubles.fake_hub import FakeHub
from tests.support.doubles.s3 import Bucket, bucket_server

TOKEN = "hf_canary"


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


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with bucket_server() as url:
        yield url


@pytest.fixture
def bucket(server: str, model: Path, environment: dict[str, str]) -> Bucket:
    """A bucket with the model below `llama`."""
    bucket = Bucket(server)
    bucket.upload(model, "llama")
    environment |= bucket.environment
    return bucket

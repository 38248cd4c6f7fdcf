"""Places that are quick to sync: what is tried here is tried many times."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cache_buckets import place as place
from tests.support.cache_buckets import server as server
from tests.support.cache_places import mounted as mounted


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A directory in memory where there is one, else on the disk."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        yield tmp_path_factory.mktemp("quick")
        return
    directory = Path(tempfile.mkdtemp(prefix="packager-faults-", dir=memory))
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def here(quick: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """A directory of the test's own, removed after it."""
    directory = Path(tempfile.mkdtemp(prefix=f"{request.node.originalname[:30]}-", dir=quick))
    yield directory
    shutil.rmtree(directory, ignore_errors=True)

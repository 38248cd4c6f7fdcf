"""Places that are quick to sync: what is tried here is tried many times."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import need, unavailable
from tests.support.cache_buckets import place as place
from tests.support.cache_buckets import server as server

Mount = Callable[[str], Path]


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


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Mount]:
    """Mount a disk in memory with the given options. Needs root."""
    if os.geteuid() != 0:
        unavailable("root, to mount a small disk,")
    mounts: list[Path] = []

    def mount(options: str) -> Path:
        at = tmp_path / f"disk{len(mounts)}"
        at.mkdir()
        command = [need("mount"), "-t", "tmpfs", "-o", options, "tmpfs", str(at)]
        if subprocess.run(command, capture_output=True).returncode:
            unavailable("the right to mount a small disk")
        mounts.append(at)
        return at

    try:
        yield mount
    finally:
        for at in mounts:
            subprocess.run([need("umount"), "-l", str(at)], check=True)

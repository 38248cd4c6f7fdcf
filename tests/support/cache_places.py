"""Places for a cache: ordinary, full, and read-only."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from artifact_cache.cache import ArtifactCache
from tests.support.cache_opening import open_local

Mount = Callable[..., Path]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Where a cache goes; it does not exist yet."""
    return tmp_path / "cache"


@pytest.fixture
def cache(root: Path) -> ArtifactCache:
    return open_local(root)


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Mount]:
    """Mount file systems that are really full or really read-only. Needs root."""
    mounts: list[Path] = []

    def mount(*arguments: str) -> Path:
        if os.geteuid() != 0 and not os.environ.get("CI"):
            pytest.skip("mounting needs root")
        at = tmp_path / f"mount{len(mounts)}"
        at.mkdir()
        done = subprocess.run(["mount", *arguments, at], capture_output=True, text=True)
        if done.returncode != 0 and not os.environ.get("CI"):
            pytest.skip(f"mounting does not work here: {done.stderr.strip()}")
        assert done.returncode == 0, done.stderr
        mounts.append(at)
        return at

    yield mount
    for at in reversed(mounts):
        subprocess.run(["umount", "--lazy", at], check=True)

"""A cache directory that nobody can write to: hits come from it, and builds go past it."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import need, unavailable
from tests.support.commandline import Done
from tests.support.demo_builds import OPTIONS, digest, environment_of
from tests.support.places import files_below

Build = Callable[..., Done]
READ_ONLY = 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && exec "$@"'


def mounted_read_only(directory: Path, command: list[str]) -> list[str]:
    """Let a command see a directory on a read-only disk: root may write whatever modes say."""
    command = ["sh", "-c", READ_ONLY, str(directory), *command]
    return [need("unshare"), "--mount", "--propagation", "private", *command]


@pytest.fixture
def build(tmp_path: Path, tools_dir: Path) -> Build:
    cache, ran = tmp_path / "cache", tmp_path / "ran"
    environment = {**os.environ, **environment_of(tmp_path, tools_dir)}

    def build(*more: str, out: str, seed: int = 0, read_only: bool = False) -> Done:
        words = ("--quantize", f"demo-slow,seconds=0.01,seed={seed},ran={ran}")
        command = [sys.executable, "-m", "packager", "build", *OPTIONS, *words]
        command += ["--output", f"oci:{out}", *more]
        if read_only and os.geteuid() == 0:
            command = mounted_read_only(cache, command)
        elif read_only:
            subprocess.run(["chmod", "-R", "a-w", str(cache)], check=True)
        try:
            done = subprocess.run(
                command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
            )
        finally:
            if read_only and os.geteuid() != 0:
                subprocess.run(["chmod", "-R", "u+w", str(cache)], check=True)
        if "mount:" in done.stderr or "unshare:" in done.stderr:
            unavailable(f"a mount namespace ({shlex.join(command[:4])}: {done.stderr.strip()})")
        return Done(done.returncode, done.stdout, done.stderr)

    return build


def test_hits_come_from_a_read_only_cache(tmp_path: Path, build: Build) -> None:
    """Once it ended with 74: the work directory lay beside the cache."""
    first = build(out="first")
    assert first.status == 0, first.err
    before = files_below(tmp_path / "cache")

    hit = build("--require-cached", out="hit", read_only=True)

    assert hit.status == 0, hit.err
    assert digest(hit) == digest(first)
    assert (tmp_path / "ran").read_text() == "x"
    assert files_below(tmp_path / "cache") == before
    assert list((tmp_path / "state/packager/work").iterdir()) == []


def test_a_miss_beside_a_read_only_cache_keeps_nothing(tmp_path: Path, build: Build) -> None:
    assert build(out="first").status == 0
    before = files_below(tmp_path / "cache")

    missed = build(out="missed", seed=7, read_only=True)

    assert missed.status == 0, missed.err
    assert "the cache is read-only" in missed.err
    assert (tmp_path / "ran").read_text() == "xx"
    assert files_below(tmp_path / "cache") == before
    assert list((tmp_path / "state/packager/work").iterdir()) == []
    assert list((tmp_path / "state/packager/runs").iterdir()) == []

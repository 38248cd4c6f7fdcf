"""The digest of an image does not depend on whether a step's result could be cached."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import need, unavailable
from tests.support.commandline import Done, packager_in
from tests.support.demo_builds import OPTIONS, digest, environment_of

pytestmark = pytest.mark.extended


class Builds:
    """Builds of one model with one tool, each with a cache and a state of its own."""

    def __init__(self, root: Path, tools_dir: Path) -> None:
        self.root = root
        self._tools_dir = tools_dir
        self._run = packager_in(root)

    def cache(self, name: str) -> Path:
        place = self.root / name / "cache"
        place.mkdir(parents=True, exist_ok=True)
        return place

    def build(self, name: str, *more: str) -> Done:
        env = environment_of(self.root / name, self._tools_dir)
        env["PYTHONPATH"] += f":{self.root / 'site'}"
        words = ("--quantize", "demo:demo-rounded", "--output", f"oci:{name}/out")
        done = self._run("build", *OPTIONS, *words, *more, env=env)
        assert done.status == 0, done.err
        return done


@pytest.fixture
def builds(tmp_path: Path, tools_dir: Path) -> Builds:
    return Builds(tmp_path, tools_dir)


@pytest.fixture
def small_disk(builds: Builds) -> Iterator[None]:
    """A disk of the cache's own with no room for the result. Needs root."""
    if os.geteuid() != 0:
        unavailable("root, to mount a small disk,")
    place = builds.cache("broken") / "artifacts"
    place.mkdir(mode=0o700)
    command = [need("mount"), "-t", "tmpfs", "-o", "size=64k,mode=0700", "tmpfs", str(place)]
    if subprocess.run(command, capture_output=True).returncode:
        unavailable("the right to mount a small disk")
    yield
    subprocess.run([need("umount"), "-l", str(place)], check=True)


# Loaded by every Python process that finds it: a disk that writes nothing below the cache.
BROKEN_DISK = """
import os
sync = os.fsync
def fsync(file):
    number = file if isinstance(file, int) else file.fileno()
    if "/broken/cache/artifacts/" in os.readlink(f"/proc/self/fd/{number}"):
        raise OSError(5, "Input/output error")
    sync(file)
os.fsync = fsync
"""


def input_output_error(builds: Builds) -> None:
    (builds.root / "site").mkdir()
    (builds.root / "site/sitecustomize.py").write_text(BROKEN_DISK)


def no_place_for_blobs(builds: Builds) -> None:
    place = builds.cache("broken") / "artifacts"
    place.mkdir(mode=0o700)
    (place / "cas").write_bytes(b"")


def open_to_others(builds: Builds) -> None:
    place = builds.cache("broken") / "artifacts"
    place.mkdir(mode=0o700)
    place.chmod(0o777)


def test_without_a_cache_the_digest_is_the_same(builds: Builds) -> None:
    """Builds from a record ended with 5 where the cache was not at hand."""
    assert digest(builds.build("a")) == digest(builds.build("b", "--no-cache"))


def test_a_full_disk_does_not_change_the_digest(builds: Builds, small_disk: None) -> None:
    broken = builds.build("broken")

    assert digest(builds.build("a")) == digest(broken)
    assert "cache:" in broken.err
    assert list(builds.cache("broken").glob("artifacts/ac/*/*/*")) == []


@pytest.mark.parametrize(
    "spoil",
    [input_output_error, no_place_for_blobs, open_to_others],
    ids=lambda spoil: spoil.__name__,
)
def test_a_broken_cache_changes_no_digest(builds: Builds, spoil: Callable[[Builds], None]) -> None:
    spoil(builds)

    broken = builds.build("broken")

    assert digest(builds.build("a")) == digest(broken)
    assert "cache:" in broken.err

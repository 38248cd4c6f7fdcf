"""kill -9 of `node-cache` and `mount` at any moment: whole entries, no mount, no device left."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from packager.addons.nodes.mounts.table import read_mounts
from packager.addons.nodes.node_cache.entry_check import find_entry, verify_entry
from tests.faults.counters import never
from tests.faults.killing import Machine
from tests.faults.scale import LONG
from tests.support.doubles.models import write_model
from tests.support.erofs_mounts import need_mounts
from tests.support.running_jobs import until

pytestmark = pytest.mark.live

BUILD = ("build", "--instance", "local", "--base", "scratch", "--quiet")
WEIGHTS = "opt/packager/model"


@dataclass(frozen=True)
class Made:
    """A layout, the names of its layers' entries, and how long each command takes."""

    layout: Path
    model: Path
    entries: frozenset[str]
    fill_s: float
    mount_s: float


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    need_mounts()
    root = tmp_path_factory.mktemp("made")
    model = write_model(root / "model", hidden_size=512, intermediate_size=1024)
    machine = Machine(root / "reference")
    place = machine.root / "mnt"
    place.mkdir(parents=True)
    layout = root / "out"
    assert machine.run(*BUILD, "--model", str(model), "--output", f"oci:{layout}") == 0, machine.err
    fill_s = timed(machine, "node-cache", f"oci:{layout}", "cache", "--dm-verity")
    mount_s = timed(machine, "mount", f"oci:{layout}", "mnt")
    assert machine.run("unmount", "mnt") == 0, machine.err
    entries = frozenset(path.name for path in (machine.root / "cache").rglob("*.erofs"))
    return Made(layout, model, entries, fill_s, mount_s)


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    made = Machine(tmp_path)
    (tmp_path / "mnt").mkdir()
    yield made
    while mounted(tmp_path / "mnt"):
        subprocess.run(["umount", str(tmp_path / "mnt")], check=True)


@pytest.mark.parametrize("seed", range(200 if LONG else 8))
def test_a_node_cache_killed_at_any_moment_has_whole_entries_and_is_filled_by_the_next(
    made: Made, machine: Machine, seed: int
) -> None:
    command = ("node-cache", f"oci:{made.layout}", "cache", "--dm-verity", "--quiet")
    cache = machine.root / "cache"

    machine.kill(seed, 0.02, 1.1 * made.fill_s, *command)

    with never("wrong_bytes"):
        for entry in cache.rglob("*.erofs"):
            assert is_whole(entry)
    with never("manual_cleanup"):
        assert machine.run(*command) == 0, machine.err
    found = {path.name for path in cache.rglob("*") if path.is_file()}
    with never("garbage_left"):
        assert found == {name + end for name in made.entries for end in ("", ".dmverity")}
        assert machine.garbage() == []
    assert all(map(is_whole, cache.rglob("*.erofs")))


@pytest.mark.parametrize("source", ["layout", "node-cache"])
@pytest.mark.parametrize("seed", range(200 if LONG else 8))
def test_a_mount_killed_at_any_moment_is_there_whole_or_not_at_all(
    made: Made, machine: Machine, seed: int, source: str
) -> None:
    options = ("--node-cache", "cache") if source == "node-cache" else ()
    command = ("mount", f"oci:{made.layout}", "mnt", "--quiet", *options)
    if options:
        assert machine.run("node-cache", f"oci:{made.layout}", "cache", "--quiet") == 0
    place = machine.root / "mnt"

    def left() -> tuple[object, ...]:
        return (*loops(machine.root, made.layout), *mounts_below(machine.root))

    machine.kill(seed, 0.02, 1.1 * made.mount_s, *command)

    if mounted(place):  # it was killed behind the step that shows it
        assert shows(place, made.model)
        assert machine.run("unmount", "mnt") == 0, machine.err
    with never("garbage_left"):
        until(lambda: left() == ())
    with never("manual_cleanup"):
        assert machine.run(*command) == 0, machine.err
        assert shows(place, made.model)
        assert machine.run("unmount", "mnt") == 0, machine.err
    with never("garbage_left"):
        until(lambda: left() == ())
        assert list(machine.root.rglob("work-*")) == []
        assert machine.garbage() == []


def timed(machine: Machine, *command: str) -> float:
    started = time.monotonic()
    assert machine.run(*command) == 0, machine.err
    return time.monotonic() - started


def is_whole(entry: Path) -> bool:
    found = find_entry(entry)
    return found is not None and verify_entry(found, f"sha256:{entry.stem}")


def shows(place: Path, model: Path) -> bool:
    """Whether every file of the model is there, byte for byte."""
    names = [path.name for path in model.iterdir() if path.suffix == ".safetensors"]
    shown = place / WEIGHTS
    return bool(names) and all(
        (shown / name).read_bytes() == (model / name).read_bytes() for name in names
    )


def mounted(place: Path) -> bool:
    return any(one.directory == str(place) for one in read_mounts())


def mounts_below(root: Path) -> list[str]:
    return [one.directory for one in read_mounts() if one.directory.startswith(str(root))]


def loops(*roots: Path) -> set[str]:
    """Loop devices of files below these directories; others are other programs'."""
    held = [
        path.read_text().strip()
        for path in Path("/sys/block").glob("loop*/loop/backing_file")
        if path.exists()
    ]
    return {name for name in held if any(name.startswith(str(root)) for root in roots)}

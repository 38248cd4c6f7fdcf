"""kill -9 at any moment: the old image or the new one is named, and the next build mends it all."""

from __future__ import annotations

import json
import secrets
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.faults.counters import never
from tests.faults.killing import Machine, has_blob, layout_image, tagged, unneeded_blobs
from tests.faults.scale import LONG, one_of_each, some
from tests.support.doubles.models import fill_with_numbers, write_model

pytestmark = pytest.mark.live

BUILD = ("build", "--instance", "local", "--base", "scratch", "--quiet", "--format", "json")
CONFIG = 16_000  # bytes of configuration, and more
# Every system call by which a build changes something, on disk or in a registry.
CALLS = ("rename", "fsync", "unlink", "mkdir", "fchmod", "write", "sendto", "fdatasync", "pwrite64")
SAMPLED = {"rename": 3, "unlink": 2, "sendto": 2}  # which of them a short run takes
CALLS_THAT_FAIL = ("fsync", "rename", "mkdir", "fchmod", "fdatasync", "pwrite64", "ftruncate")


@dataclass(frozen=True)
class Target:
    """A model, what its image is, and an older model."""

    model: Path
    older: Path
    digest: str
    blobs: tuple[dict[str, object], ...]
    seconds: float
    options: tuple[str, ...] = ()


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Target:
    return made_target(tmp_path_factory.mktemp("models"))


def made_target(root: Path, *options: str) -> Target:
    """Build once, to know what is right and how long it takes."""
    model = write_model(root / "model", hidden_size=512, intermediate_size=1024)
    older = write_model(root / "older", shards=1, seed=5)
    for place in (model, older) if options else ():
        fill_with_numbers(place)
    machine = Machine(root / "reference")
    machine.root.mkdir()
    build = (*BUILD, *options, "--model", str(model), "--output", "oci:out")
    assert machine.run(*build) == 0, machine.err
    digest = json.loads(machine.out)["digest"]
    blobs = machine.root / "out" / "blobs" / "sha256"
    manifest = json.loads((blobs / digest[7:]).read_bytes())
    shutil.rmtree(machine.root / "out")
    started = time.monotonic()
    assert machine.run(*build) == 0
    seconds = time.monotonic() - started
    blobs_of_image = (manifest["config"], *manifest["layers"])
    return Target(model, older, digest, blobs_of_image, seconds, options)


@dataclass
class Scene:
    """A machine, a layout and a repository, both of which hold an older image."""

    machine: Machine
    target: Target
    registry: str
    repository: str
    old: str = ""

    def build(self, model: Path) -> tuple[str, ...]:
        outputs = ("--output", "oci:out", "--output", f"{self.registry}/{self.repository}:1")
        given = ("--model", str(model), *self.target.options, *outputs)
        return (*BUILD, *given, "--record", "record.json")

    @property
    def layout(self) -> Path:
        return self.machine.root / "out"

    def check(self, status: int) -> None:
        """The old image or the new one, then a rerun that sends only what is missing."""
        with never("incomplete_tag"):
            allowed = {self.target.digest} if status == 0 else {self.target.digest, self.old}
            assert layout_image(self.layout) in allowed
            assert tagged(self.registry, self.repository) in allowed
        missing = sum(
            int(str(entry["size"]))
            for entry in self.target.blobs
            if not has_blob(self.registry, self.repository, entry)
        )

        with never("manual_cleanup"):
            assert self.machine.run(*self.build(self.target.model)) == 0, self.machine.err

        with never("sent_again"):
            assert json.loads(self.machine.out)["transfer"]["bytes_sent"] <= missing + CONFIG
        with never("wrong_bytes"):
            assert tagged(self.registry, self.repository) == self.target.digest
            assert layout_image(self.layout) == self.target.digest
        with never("garbage_left"):
            assert unneeded_blobs(self.layout) == set()
            assert self.machine.garbage() == []


@pytest.fixture
def scene(target: Target, registry: str, tmp_path: Path) -> Scene:
    return new_scene(target, registry, tmp_path)


def new_scene(target: Target, registry: str, root: Path) -> Scene:
    """Directories and a repository of their own, with an older image in place."""
    root.mkdir(exist_ok=True)
    repository = f"killed/{secrets.token_hex(8)}"  # other tests push into the same registry
    made = Scene(Machine(root), target, registry, repository)
    assert made.machine.run(*made.build(target.older)) == 0, made.machine.err
    made.old = layout_image(made.layout)
    assert tagged(registry, made.repository) == made.old
    return made


@pytest.mark.parametrize("seed", range(300 if LONG else 12))
def test_a_build_killed_at_any_moment_is_mended_by_the_next(scene: Scene, seed: int) -> None:
    build = scene.build(scene.target.model)

    status = scene.machine.kill(seed, 0.02, scene.target.seconds * 1.3, *build)

    scene.check(status)


@pytest.mark.parametrize("call", some(CALLS, 4))
def test_a_build_killed_at_a_call_that_changes_something_is_mended_by_the_next(
    target: Target, registry: str, tmp_path: Path, call: str
) -> None:
    """Each thread counts its own calls, so a number may stand for several of them."""
    for number in [*range(1, 60)] if LONG else [SAMPLED.get(call, 1)]:
        scene = new_scene(target, registry, tmp_path / f"{call}{number}")
        status, happened = traced(scene, call, f"signal=KILL:when={number}")
        if not happened:
            assert LONG and number > 1, "nothing was injected"
            return

        scene.check(status)


@pytest.mark.parametrize(
    ("call", "error"), one_of_each(some(CALLS_THAT_FAIL, 4), ("ENOSPC", "EIO"))
)
def test_a_call_that_fails_is_explained_or_does_no_harm(
    target: Target, registry: str, tmp_path: Path, call: str, error: str
) -> None:
    for number in [*range(1, 40)] if LONG else [1]:
        scene = new_scene(target, registry, tmp_path / f"{call}{number}")
        status, happened = traced(scene, call, f"error={error}:when={number}")
        if not happened:
            assert LONG and number > 1, "nothing was injected"
            return

        with never("untyped_failures"):
            assert status in (0, 69, 74), scene.machine.err
            assert "Traceback" not in scene.machine.err
        scene.check(status)


def traced(scene: Scene, call: str, fault: str) -> tuple[int, bool]:
    """Build while a system call goes wrong, if it is made so often; tell whether it was."""
    build = scene.build(scene.target.model)
    status, calls = scene.machine.traced(call, f"--inject={call}:{fault}", arguments=build)
    return status, "(INJECTED" in calls or status < 0

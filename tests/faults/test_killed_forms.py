"""kill -9 of a build of two forms: between its manifests, in a registry and in a layout."""

from __future__ import annotations

import json
import re
import secrets
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.faults.counters import never
from tests.faults.killing import Machine, layout_image, tagged, unneeded_blobs
from tests.support.doubles.fault_proxy import Fault, FaultProxy
from tests.support.doubles.models import write_model
from tests.support.running_jobs import until

pytestmark = pytest.mark.live

BUILD = ("build", "--instance", "local", "--base", "scratch", "--layer-format", "erofs", "--quiet")
OLDER = ("build", "--instance", "local", "--base", "scratch", "--quiet")
RENAMED = re.compile(r'^(\d+) +rename\("[^"]+", "([^"]+)"\)', re.MULTILINE)
# In the order in which they are sent: of both forms, of the index, and the tag.
MANIFESTS = ("plain", "file systems", "index", "tag")


@dataclass(frozen=True)
class Models:
    """A model, another one that was built before, and what an index of the first names."""

    new: Path
    old: Path
    digest: str
    forms: tuple[str, ...]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Models:
    root = tmp_path_factory.mktemp("models")
    new, old = write_model(root / "model"), write_model(root / "older", shards=1, seed=5)
    machine = Machine(root / "reference")
    machine.root.mkdir()
    built = (*BUILD, "--model", str(new), "--output", "oci:out", "--format", "json")
    assert machine.run(*built) == 0, machine.err
    digest = json.loads(machine.out)["digest"]
    index = json.loads((machine.root / "out/blobs/sha256" / digest[7:]).read_bytes())
    return Models(new, old, digest, tuple(one["digest"] for one in index["manifests"]))


@pytest.mark.parametrize("had", ["nothing", "an older image"])
@pytest.mark.parametrize("done", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("number", range(4), ids=MANIFESTS)
def test_a_build_killed_between_two_manifests_leaves_the_tag_of_a_registry_as_it_was(
    models: Models, registry: str, tmp_path: Path, number: int, done: bool, had: str
) -> None:
    """The registry has the manifest or not; the builder dies while it waits for the answer."""
    repository = f"forms/{secrets.token_hex(8)}"
    machine = Machine(tmp_path)
    if had == "an older image":
        target = f"{registry}/{repository}:1"
        assert machine.run(*OLDER, "--model", str(models.old), "--output", target) == 0
    old = tagged(registry, repository)
    assert bool(old) == (had == "an older image")
    with FaultProxy(registry) as proxy:
        what = Fault("delay" if done else "stall", method="PUT", path="/manifests/", skip=number)
        proxy.add(what)
        build = (*BUILD, "--model", str(models.new), "--output", f"{proxy.host}/{repository}:1")
        process = machine.start(*build)
        until(lambda: bool(what.hits), within_s=120)
        process.kill()
        process.join(60)

    with never("incomplete_tag"):
        moved = number == 3 and done  # the tag itself was put
        assert tagged(registry, repository) == (models.digest if moved else old)
    with never("manual_cleanup"):
        target = f"{registry}/{repository}:1"
        assert machine.run(*BUILD, "--model", str(models.new), "--output", target) == 0, machine.err
    assert tagged(registry, repository) == models.digest
    with never("garbage_left"):
        assert machine.garbage() == []


@pytest.mark.parametrize("had", ["nothing", "an older image"])
def test_a_build_killed_at_any_name_of_a_layout_names_what_it_named_before(
    models: Models, tmp_path: Path, had: str
) -> None:
    """From the first form's manifest on: each rename of the thread that gives names."""
    names = renamed(models, tmp_path / "counted")
    first = next(number for number, name in enumerate(names, 1) if models.forms[0][7:] in name)
    second = next(number for number, name in enumerate(names, 1) if models.forms[1][7:] in name)
    last = next(number for number, name in enumerate(names, 1) if name.endswith("/index.json"))
    assert first < second < last

    for number in range(first, last + 2):
        machine = Machine(tmp_path / str(number))
        machine.root.mkdir()
        layout = machine.root / "out"
        if had == "an older image":
            assert machine.run(*OLDER, "--model", str(models.old), "--output", "oci:out") == 0
        old = layout_image(layout)

        status, _ = strace(models, machine, f"--inject=rename:signal=KILL:when={number}")

        assert status == -9 or number > last
        with never("incomplete_tag"):
            assert layout_image(layout) == (old if number <= last else models.digest)
        with never("manual_cleanup"):
            build = (*BUILD, "--model", str(models.new), "--output", "oci:out")
            assert machine.run(*build) == 0, machine.err
        assert layout_image(layout) == models.digest
        with never("garbage_left"):
            assert unneeded_blobs(layout) == set()
            assert machine.garbage() == []


def renamed(models: Models, root: Path) -> list[str]:
    """Return what the thread that writes manifests renames to, in order."""
    root.mkdir()
    _, trace = strace(models, Machine(root))
    found = RENAMED.findall(trace)
    publisher = next(thread for thread, name in found if name.endswith("/index.json"))
    return [name for thread, name in found if thread == publisher]


def strace(models: Models, machine: Machine, *fault: str) -> tuple[int, str]:
    """Build into `oci:out` under strace; return the status and what was renamed."""
    build = (*BUILD, "--model", str(models.new), "--output", "oci:out")
    return machine.traced("rename", "-s", "4096", *fault, arguments=build)

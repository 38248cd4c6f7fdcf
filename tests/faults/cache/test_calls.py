"""kill -9 and failing disks at every system call that changes something."""

from __future__ import annotations

import itertools
import shutil
from functools import cache
from pathlib import Path

import pytest

from artifact_cache.fsck import check
from artifact_cache.store import address_of
from tests.faults.cache.scenes import PINNED, scene_for
from tests.faults.cache.state import held, mend
from tests.faults.cache.tracing import Call, Ended, run
from tests.faults.cache.working import OPERATIONS
from tests.faults.counters import never, tried
from tests.faults.scale import LONG
from tests.support.cache_opening import LocalStore

BUILDING = ("/out", "/theirs")  # where builds write; a disk that fails there fails them
ERRORS = ("ENOSPC", "EIO", "EACCES")
PUBLISHING = ("publish", "heal", "adopt", "fetch-far", "publish-far", "unpack")


@pytest.fixture(scope="module")
def scenes(quick: Path) -> Scenes:
    return Scenes(quick)


class Scenes:
    """Each operation's directories, made once and copied for each fault."""

    def __init__(self, at: Path) -> None:
        self.at = at
        self.of = cache(self._of)
        self._numbers = itertools.count()

    def _of(self, operation: str) -> tuple[Path, Ended]:
        template = scene_for(operation, self.at / operation)
        ended = run(operation, self._copy(template))
        assert ended.error == "" or operation == "reject", ended
        assert ended.right is not False
        return template, ended

    def calls(self, operation: str) -> tuple[Call, ...]:
        return self.of(operation)[1].calls

    def copy(self, operation: str) -> Path:
        return self._copy(self.of(operation)[0])

    def _copy(self, template: Path) -> Path:
        scene = self.at / f"{next(self._numbers)}"
        shutil.copytree(template, scene)
        return scene


def chosen(calls: tuple[Call, ...], faults: tuple[str, ...]) -> list[tuple[Call, str]]:
    """Every call with every fault; in the short form each sort of call with one, in turn."""
    if LONG:
        return list(itertools.product(calls, faults))
    sorts: dict[str, list[Call]] = {}
    for call in calls:
        sorts.setdefault(call.name, []).append(call)
    return [
        (of[number % len(of)], faults[number % len(faults)])
        for number, of in enumerate(sorts.values(), start=1)
    ]


@pytest.mark.parametrize("operation", OPERATIONS)
def test_killed_at_any_call_the_next_run_mends_it(scenes: Scenes, operation: str) -> None:
    for call, fault in chosen(scenes.calls(operation), ("signal=KILL",)):
        scene = scenes.copy(operation)
        ended = run(operation, scene, f"{fault}:when={call.number}", call.name)
        assert ended.killed, f"{call} was not made"

        check_after(operation, scene, f"killed before {call}")


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_failing_call_is_explained_and_does_no_harm(scenes: Scenes, operation: str) -> None:
    for call, error in chosen(scenes.calls(operation), ERRORS):
        scene = scenes.copy(operation)
        ended = run(operation, scene, f"error={error}:when={call.number}", call.name)
        assert ended.injected, f"{call} was not made"

        with never("untyped_failures"):
            assert ended.explained, f"{ended.error} after {error} of {call}"
        with never("wrong_bytes"):
            assert ended.right is not False, f"after {error} of {call}"
        if gives_files(operation) and not any(place in call.text for place in BUILDING):
            assert ended.error == "", f"{error} of {call} failed a build that could succeed"
        check_after(operation, scene, f"{error} of {call}")


def gives_files(operation: str) -> bool:
    return operation in ("publish", "fetch", "heal", "heal-entry", "adopt", "fetch-far")


def check_after(operation: str, scene: Path, what: str) -> None:
    tried()
    if operation == "fsck":  # what is in quarantine waits for it
        check(LocalStore(scene / "cache"))
    try:
        mend(scene / "cache", scene, pinned=[PINNED])
        if (scene / "far").exists():
            (scene / "farther").mkdir()
            mend(scene / "far", scene / "farther")
        with never("pin_lost"):
            assert address_of(PINNED).key in held(scene / "cache")
    except AssertionError as error:
        error.add_note(f"{operation}, {what}")
        raise
    shutil.rmtree(scene)


# --- the order in which things reach the disk


@pytest.mark.parametrize("operation", PUBLISHING)
def test_everything_is_on_the_disk_before_it_gets_a_name(scenes: Scenes, operation: str) -> None:
    """fsync(blob) < rename < fsync(its directory) < link of the entry < fsync(its directory)."""
    calls = scenes.calls(operation)
    named = [call for call in calls if _target(call, "/cas/sha256/") or _target(call, "/ac/")]
    assert any(_target(call, "/cas/sha256/") for call in named)
    assert any(_target(call, "/ac/") for call in named)
    for call in named:
        tried()
        at = calls.index(call)
        source, target = call.text.split('"')[1], call.text.split('"')[3]
        before = [one for one in calls[:at] if source in one.text]
        assert any(one.name == "fsync" for one in before), f"{source} has a name too early"
        written = [one.name for one in before if one.name in ("write", "fsync")]
        assert written[-1] == "fsync", f"{source} was written after it was synced"
        directory = str(Path(target).parent)
        assert any(one.name == "fsync" and f"<{directory}>" in one.text for one in calls[at:]), (
            f"the name of {target} is not synced"
        )
    for entry in (call for call in named if _target(call, "/ac/")):
        root = entry.text.split('"')[3].partition("/ac/")[0]
        at = calls.index(entry)
        blobs = [c for c in calls[:at] if _target(c, "/cas/sha256/") and root in c.text]
        for blob in blobs:
            directory = str(Path(blob.text.split('"')[3]).parent)
            between = calls[calls.index(blob) : at]
            assert any(one.name == "fsync" and f"<{directory}>" in one.text for one in between), (
                f"{entry.text} names a blob whose name is not synced"
            )


def _target(call: Call, place: str) -> bool:
    if call.name not in ("rename", "renameat", "renameat2", "link", "linkat"):
        return False
    parts = call.text.split('"')
    return len(parts) > 3 and place in parts[3]

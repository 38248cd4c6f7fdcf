"""Processes that want the same at once, some of them killed or stopped, and collectors between."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import time
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from artifact_cache.fsck import check
from artifact_cache.gc import GcPolicy, collect
from artifact_cache.pins import Pin, Pins
from artifact_cache.store import address_of
from tests.faults.cache.state import mend
from tests.faults.cache.working import OldBuild
from tests.faults.counters import never, tried
from tests.faults.forking import FORKED
from tests.faults.scale import LONG
from tests.support.cache_entries import CHECKPOINT, Build, document, files_of
from tests.support.cache_opening import LocalStore, open_local
from tests.support.places import files_below
from tests.support.running_jobs import until

ROUNDS = 60 if LONG else 12
CYCLES_S = 60.0 if LONG else 2.0
PATIENCE_S = 60.0
TAKEOVER_S = 50.0  # a lock that expired would be given away later
KEYS = 6


def builder(scene: str, number: int) -> None:
    """Get or build the key; a line in `log` says that a build began, another that it ended."""
    at = Path(scene)

    def build(directory: Path) -> None:
        _note(at / "log", f"begun {number} {os.getpid()} {time.monotonic()}")
        time.sleep(0.3)
        OldBuild(b"%d" % number)(directory)

    result = open_local(at / "cache").get_or_build(CHECKPOINT, build, at / f"out{number}")
    files = {name: data.hex() for name, data in files_below(result.path).items()}
    (at / f"said{number}").write_text(json.dumps(files))


def _note(log: Path, line: str) -> None:
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(descriptor, f"{line}\n".encode())
    os.close(descriptor)


def begun(scene: Path) -> list[tuple[int, int, float]]:
    """Builder, process and moment of each build that began."""
    log = scene / "log"
    lines = log.read_text().splitlines() if log.exists() else []
    return [
        (int(number), int(pid), float(moment))
        for _, number, pid, moment in (line.split() for line in lines)
    ]


def start(target: Callable[..., None], *arguments: object) -> BaseProcess:
    process = FORKED.Process(target=target, args=arguments, daemon=True)
    process.start()
    return process


def wait_for(condition: Callable[[], bool]) -> None:
    with never("hangs"):
        until(condition, every_s=0.005)


def signalled(pid: int, which: signal.Signals) -> bool:
    """False where the process is over: on a busy machine it may build while we sleep.

    One that is over but was not waited for yet takes a signal still: the next may find nobody.
    """
    try:
        os.kill(pid, which)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("seed", range(ROUNDS))
def test_one_build_for_all_and_one_more_for_each_holder_killed(here: Path, seed: int) -> None:
    dice = random.Random(seed)
    processes = [start(builder, str(here), number) for number in range(2 + seed % 7)]
    killed: set[int] = set()
    for _ in range(dice.randrange(min(3, len(processes)))):
        tried()
        seen = len(killed) + 1
        wait_for(
            lambda seen=seen: (  # type: ignore[misc]
                len(begun(here)) >= seen or not any(process.is_alive() for process in processes)
            )
        )
        if len(begun(here)) < seen:
            break  # the one that was killed last had published
        number, pid, _ = begun(here)[-1]
        if not processes[number].is_alive():
            break  # it was done before we came to stop or kill it
        if dice.random() < 0.4:
            if not signalled(pid, signal.SIGSTOP):  # nobody may take over: it will go on
                break
            time.sleep(0.4)
            assert len(begun(here)) == seen
            if not signalled(pid, signal.SIGCONT):
                break
            continue
        # Let the others come to wait for it, and kill it while it builds.
        time.sleep(dice.uniform(0, 0.2))
        if not signalled(pid, signal.SIGKILL):
            break
        moment = time.monotonic()
        killed.add(number)
        # On a busy machine the kill may come when the build was published: nobody builds then.
        others = [process for one, process in enumerate(processes) if one != number]
        wait_for(
            lambda seen=seen, others=others: (  # type: ignore[misc]
                len(begun(here)) > seen or not any(process.is_alive() for process in others)
            )
        )
        if len(begun(here)) > seen:
            assert begun(here)[seen][2] - moment < TAKEOVER_S, "a killed holder is missed too long"
    for process in processes:
        process.join(PATIENCE_S)
        with never("hangs"):
            assert process.exitcode is not None
    tried()

    assert len(begun(here)) <= 1 + len(killed)
    outcomes = {
        number: json.loads((here / f"said{number}").read_text())
        for number in range(len(processes))
        if number not in killed
    }
    with never("untyped_failures"):
        assert all(process.exitcode in (0, -signal.SIGKILL) for process in processes)
    with never("wrong_bytes"):
        final = begun(here)[-1][0]
        right = {name: data.hex() for name, data in files_of(b"%d" % final).items()}
        assert all(files == right for files in outcomes.values())
    mend(here / "cache", here, known=(b"%d" % final,))


# --- collectors


def publisher(scene: str, seed: int, until: float) -> None:
    """Get or build keys in turn, all of which share a blob, and compare what came."""
    at, dice, turn = Path(scene), random.Random(seed), 0
    while time.monotonic() < until:
        turn += 1
        key = dice.randrange(KEYS)
        into = at / f"out{seed}-{turn}"
        result = open_local(at / "cache").get_or_build(document(key), Build(b"%d" % key), into)
        if files_below(into) != files_of(b"%d" % key):
            _note(at / "wrong", f"{seed} {turn}")
        for notice in result.notices:
            if notice.code == "corrupt":
                _note(at / "lost", notice.message)
        shutil.rmtree(into)
    _note(at / "turns", str(turn))


def reader(scene: str, until: float) -> None:
    """Take out the pinned entry again and again."""
    at, turn = Path(scene), 0
    while time.monotonic() < until:
        turn += 1
        into = at / f"pinned{turn}"
        result = open_local(at / "cache").get_or_build(CHECKPOINT, Build(b"rebuilt"), into)
        if not result.hit or files_below(into) != files_of(b"pinned"):
            _note(at / "unpinned", f"{turn}: {result.notices}")
        shutil.rmtree(into)
    _note(at / "turns", str(turn))


def collector(scene: str, until: float) -> None:
    """Collect all that may go, all the time, with no grace."""
    at, turn = Path(scene), 0
    while time.monotonic() < until:
        turn += 1
        policy = GcPolicy(max_bytes=0, grace_s=0, quarantine_s=0)
        found = collect(LocalStore(at / "cache"), policy)
        if found.problem:
            _note(at / "problems", found.problem)
    _note(at / "cycles", str(turn))


def test_collectors_take_nothing_that_is_pinned_published_or_read(here: Path) -> None:
    root = here / "cache"
    open_local(root).get_or_build(CHECKPOINT, OldBuild(b"pinned"), here / "first")
    Pins(LocalStore(root)).add("kept", Pin(keys=(address_of(CHECKPOINT).key,)))
    until = time.monotonic() + CYCLES_S + 1
    processes = [
        *(start(publisher, str(here), seed, until) for seed in range(3)),
        start(reader, str(here), until),
        *(start(collector, str(here), until) for _ in range(2)),
    ]
    for process in processes:
        process.join(CYCLES_S + PATIENCE_S)
        with never("hangs"):
            assert process.exitcode is not None
    with never("untyped_failures"):
        assert [process.exitcode for process in processes] == [0] * len(processes)
    tried(_sum(here / "cycles"))
    assert _sum(here / "turns") > 0

    with never("wrong_bytes"):
        assert not (here / "wrong").exists()
    with never("pin_lost"):
        assert not (here / "unpinned").exists(), (here / "unpinned").read_text()
    with never("manual_cleanup"):
        assert not (here / "lost").exists(), (here / "lost").read_text()
        assert not (here / "problems").exists()
        assert check(LocalStore(root)).problems == ()
    (here / "work").mkdir()
    mend(root, here / "work", known=(b"pinned",), pinned=[CHECKPOINT])


def _sum(path: Path) -> int:
    return sum(map(int, path.read_text().split()))

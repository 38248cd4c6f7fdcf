"""Jobs on disks that are full or damaged, and stores that many processes use at once."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from packager.addons.server.jobs.runner import ASK_S
from packager.addons.server.jobs.scheduler import Scheduler
from packager.addons.server.jobs.store import JobStore
from packager.addons.server.jobs.values import JobLimits, JobQuery
from packager.core.errors import OutputFailed, PackagerError
from packager.core.files.sqlite import DatabaseBroken
from tests.faults.counters import never
from tests.support.job_values import new_job, stage
from tests.support.places import ROOT
from tests.support.running_jobs import commands_of, kill_all, run_to_end, until


@pytest.fixture
def store(tmp_path: Path) -> Iterator[JobStore]:
    store = JobStore(tmp_path / "jobs")
    yield store
    with suppress(DatabaseBroken):
        kill_all(*store.unfinished())


def fill(disk: Path) -> Path:
    """Take all the space of a disk; removing the file gives it back."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file:
        for size in (65536, 4096):
            try:
                while True:
                    file.write(b"x" * size)
            except OSError:
                continue
    return filler


def run_apart(program: str, *words: object) -> str:
    """Run it in a process of its own: closing the database here would end our locks."""
    command = [sys.executable, "-c", program, *map(str, words)]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout


def test_a_job_that_has_no_room_is_refused_and_leaves_nothing(small_disk: Path) -> None:
    store = JobStore(small_disk / "jobs")
    store.create(new_job("a"))
    filler = fill(small_disk)

    with pytest.raises(OutputFailed, match="no space left") as refused:
        store.create(new_job("b", files={"request.json": b"x" * 10_000}))

    assert "free some space" in refused.value.hint
    assert [job.name for job in store.list(JobQuery()).jobs] == ["a"]
    filler.unlink()
    with never("garbage_left"):
        assert len([path for path in store.root.iterdir() if path.is_dir()]) == 1
    assert store.create(new_job("b")).status == "queued"


def test_a_database_that_has_no_room_is_told_and_goes_on_when_it_has(small_disk: Path) -> None:
    store = JobStore(small_disk / "jobs")
    store.create(new_job("a"))
    filler = fill(small_disk)

    failed = 0
    for number in range(200):  # what room there is in the journal is used up
        try:
            store.create(new_job(f"job-{number}", document={"filler": "x" * 4000}))
        except PackagerError as error:
            with never("untyped_failures"):
                assert isinstance(error, OutputFailed), error
            failed += 1
    filler.unlink()

    assert failed > 150
    assert store.create(new_job("b")).status == "queued"
    assert store.claim(1) is not None


def test_a_job_whose_disk_fills_up_while_it_runs_ends_when_there_is_space_again(
    small_disk: Path, tmp_path: Path
) -> None:
    store, go_on, ran = JobStore(small_disk / "jobs"), tmp_path / "go-on", tmp_path / "ran"
    words = (f"append={ran}:begun", f"wait={go_on}", "exit=0")
    job = store.create(new_job(stages=(stage("build", *words), stage("next", "exit=0"))))
    scheduler = Scheduler(store)
    scheduler.start()
    until(lambda: ran.exists())
    filler = fill(small_disk)
    go_on.touch()
    until(lambda: not commands_of(job))
    time.sleep(2 * ASK_S)  # nothing can be kept meanwhile: the runner tries again and again
    filler.unlink()

    try:
        until(lambda: store.get("optimization", "a").status == "completed")
    finally:
        scheduler.close()

    assert ran.read_text() == "begun\n"
    assert not commands_of(job)


@pytest.mark.parametrize("begin", [0, 20, 4096, 12_000])
def test_a_damaged_database_is_a_typed_error_whatever_is_asked(store: JobStore, begin: int) -> None:
    for number in range(60):
        store.create(new_job(f"job-{number}", document={"filler": "x" * 500}))
    run_apart(_DAMAGE, store.root / "jobs.sqlite", begin)
    other = JobStore(store.root)

    for ask in (
        lambda: other.list(JobQuery(sort_by="name", most=1000)),
        lambda: other.create(new_job("new")),
        lambda: other.claim(1),
        lambda: other.stop("optimization", "job-59"),
        lambda: other.delete("optimization", "job-3"),
        lambda: Scheduler(other).tick(),
        lambda: other.sweep(),
    ):
        try:
            ask()  # type: ignore[no-untyped-call]
        except PackagerError as error:
            with never("untyped_failures"):
                assert isinstance(error, DatabaseBroken) or error.exit_code in (2, 66), error


_DAMAGE = """
import sqlite3, sys
path, begin = sys.argv[1], int(sys.argv[2])
connection = sqlite3.connect(path)
connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
connection.close()
with open(path, "r+b") as file:
    file.seek(begin)
    file.write(bytes(range(255, 0, -1)) * 8)
"""

_CLAIM = """
import json, sys
from pathlib import Path
from packager.addons.server.jobs.store import JobStore
store = JobStore(Path(sys.argv[1]))
print("ready", flush=True)
sys.stdin.readline()
taken = []
while (job := store.claim(1000)) is not None:
    taken.append(job.name)
print(json.dumps(taken))
"""


def test_processes_that_claim_at_once_get_each_job_once(store: JobStore) -> None:
    for number in range(60):
        store.create(new_job(f"job-{number}"))
    claimers = [
        subprocess.Popen(
            [sys.executable, "-c", _CLAIM, str(store.root)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(4)
    ]
    for one in claimers:
        assert one.stdout is not None
        assert one.stdout.readline() == "ready\n"

    outputs = []
    for one in claimers:
        assert one.stdin is not None
        one.stdin.write("\n")
        one.stdin.flush()
    for one in claimers:
        outputs.append(one.communicate(timeout=120)[0])

    taken = [name for output in outputs for name in json.loads(output)]
    assert len(taken) == len(set(taken)) == 60


def test_a_process_that_comes_and_goes_takes_away_no_change_of_another(store: JobStore) -> None:
    """Which of them is the last to close the database, locks of the file say; two stores here."""
    store.create(new_job("first"))
    JobStore(store.root).create(new_job("second"))
    run_apart(_LIST, store.root)

    store.create(new_job("third"))

    assert run_apart(_LIST, store.root).split() == ["first", "second", "third"]


_LIST = """
import sys
from pathlib import Path
from packager.addons.server.jobs.store import JobStore
from packager.addons.server.jobs.values import JobQuery
store = JobStore(Path(sys.argv[1]))
print(*(job.name for job in store.list(JobQuery(descending=False)).jobs))
"""


def test_threads_that_make_jobs_of_one_name_make_one(store: JobStore) -> None:
    def make(number: int) -> bool:
        try:
            store.create(new_job("same", files={"number": str(number).encode()}))
        except PackagerError:
            return False
        return True

    with ThreadPoolExecutor(16) as threads:
        made = list(threads.map(make, range(32)))

    assert made.count(True) == 1
    winner = store.get("optimization", "same")
    assert (winner.folder / "number").read_text() == str(made.index(True))
    with never("garbage_left"):
        assert [path for path in store.root.iterdir() if path.is_dir()] == [winner.folder]


def test_many_clients_look_while_jobs_run(store: JobStore) -> None:
    """A page and a job are there at once, however many ask; the figure is for a quiet machine."""
    event = json.dumps({"step": "x", "state": "running", "bytes": 1, "total": 9, "detail": ""})
    words = [word for _ in range(600) for word in (f"step={event}", "say=line", "sleep=0.1")]
    for number in range(20):
        store.create(new_job(f"job-{number}", stages=(stage("build", *words),)))
    scheduler = Scheduler(store, at_once=20)
    scheduler.start()
    until(lambda: sum(job.status == "running" for job in store.unfinished()) == 20)

    def look(number: int) -> float:
        began = time.perf_counter()
        if number % 2:
            assert len(store.list(JobQuery(kind="optimization", most=10)).jobs) == 10
        else:
            store.get("optimization", f"job-{number % 20}")
        return time.perf_counter() - began

    with ThreadPoolExecutor(50) as threads:
        took = sorted(threads.map(look, range(1000)))
    for job in store.unfinished():
        store.stop(job.kind, job.name)
    until(lambda: not store.unfinished())
    scheduler.close()

    assert took[int(len(took) * 0.95)] < 1.0


def test_a_clock_that_is_set_back_ends_no_job_and_keeps_none(store: JobStore) -> None:
    job = store.create(
        new_job(stages=(stage("build", "sleep=60"),), limits=JobLimits(run_s=1, wait_s=60))
    )
    # The job was made tomorrow, as far as the runner's clock goes.
    tomorrow = job.created.timestamp() + 86_400
    run_apart(_SET, store.root / "jobs.sqlite", int(tomorrow * 1e6))

    done = run_to_end(store, job)

    assert (done.status, done.failure) == ("stopped", "MaxRuntimeExceeded")
    assert done.ended is not None
    assert done.ended >= done.modified >= done.created


_SET = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
connection.execute("UPDATE jobs SET created = ?, modified = ?", (sys.argv[2], sys.argv[2]))
connection.commit()
"""

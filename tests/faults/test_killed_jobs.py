"""kill -9 of the queue, of a job's runner and command, at any moment: the job is completed."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from packager.addons.server.jobs.folders import LOCK_FILE, STAGE_LOCK_FILE
from packager.addons.server.jobs.store import JobStore
from packager.addons.server.jobs.values import ENDED, BackgroundJob, NewJob, Stage
from tests.faults.counters import never, tried
from tests.faults.killing import Machine, layout_image
from tests.faults.scale import LONG
from tests.support.cases import read_tables
from tests.support.commandline import TINY
from tests.support.running_jobs import kill_all, processes_of
from tests.support.tool_steps import OUTSIDE

TABLES = read_tables(__file__)

KILLS = 10
STEP_S = 1.5
PATIENCE_S = 240.0


class Queue:
    """`packager jobs run`, started again whenever it is gone."""

    def __init__(self, machine: Machine, tools: Path) -> None:
        self._environment = {
            **os.environ,
            **machine.environment,
            "PYTHONPATH": str(OUTSIDE),
            "PACKAGER_TOOLS": str(tools),
        }
        (machine.root / "tmp").mkdir(parents=True, exist_ok=True)
        self._process: subprocess.Popen[bytes] | None = None

    def run(self) -> None:
        if self._process is None or self._process.poll() is not None:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "packager", "jobs", "run"],
                env=self._environment,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tools")


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.fixture
def store(machine: Machine) -> JobStore:
    return JobStore(machine.root / "state" / "packager" / "jobs")


@pytest.fixture
def queue(machine: Machine, store: JobStore, tools: Path) -> Iterator[Queue]:
    queue = Queue(machine, tools)
    yield queue
    queue.kill()
    kill_all(*store.unfinished())


def quantizing(machine: Machine) -> NewJob:
    """A plan, then a build with a step that notes its beginning and its end."""
    ran = machine.root / "ran"
    common = ("--model", str(TINY), "--instance", "local")
    how = f"demo-counted,seconds={STEP_S:g},ran={ran}"
    build = ("build", *common, "--base", "scratch", "--quantize", how)
    outputs = ("--output", f"oci:{machine.root / 'out'}", "--record", "{job}/record.json")
    return NewJob(
        kind="optimization",
        name="killed",
        document={},
        stages=(Stage("plan", ("plan", *common)), Stage("build", (*build, *outputs))),
    )


@pytest.mark.capability("jobs")
@pytest.mark.parametrize("victims", ["runners", "everything"])
@pytest.mark.parametrize("seed", range(20 if LONG else 1))
def test_a_job_that_is_killed_ten_times_is_completed_and_no_step_ended_twice(
    machine: Machine, store: JobStore, queue: Queue, victims: str, seed: int
) -> None:
    job = store.create(quantizing(machine))
    chance = random.Random(f"{seed} {victims}")
    tried(KILLS)

    for _ in range(KILLS):
        queue.run()
        time.sleep(chance.uniform(0.1, 1.0))
        queue.kill()
        kill(job, commands=victims == "everything" and chance.random() < 0.5)
    end = time.monotonic() + PATIENCE_S
    while store.get(job.kind, job.name).status not in ENDED:
        queue.run()
        time.sleep(0.05)
        with never("hangs"):
            assert time.monotonic() < end, job.log.read_text()

    done = store.get(job.kind, job.name)
    assert (done.status, done.failure) == ("completed", ""), job.log.read_text()
    ran = (machine.root / "ran").read_text().splitlines()
    if victims == "runners":
        assert ran == ["begun", "ended"]
    else:  # a kill may fall between the end of a tool and the publication of its result
        assert ran[-1] == "ended"
        assert ran.count("ended") <= 2, ran
    with never("incomplete_tag"):
        assert layout_image(machine.root / "out") != ""
    with never("garbage_left"):
        assert machine.garbage() == []
    assert (
        sorted(path.name for path in job.folder.iterdir() if path.name[0] != ".")
        == TABLES["a_job_that_is_killed_ten_times_is_completed_and_no_step_ended_twice"]
    )


def kill(job: BackgroundJob, *, commands: bool) -> None:
    """Kill the runner; with `commands` also the command and the shell that waits for it."""
    for number, lock in processes_of(job).items():
        if lock == LOCK_FILE or (commands and lock == STAGE_LOCK_FILE):
            with suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)

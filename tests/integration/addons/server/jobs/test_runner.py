"""Jobs that run: what is kept of them, how they fail, stop and survive."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from packager.addons.server.jobs import scheduler
from packager.addons.server.jobs.folders import take_lock
from packager.addons.server.jobs.progress import Progress, read_progress, write_progress
from packager.addons.server.jobs.runner import Runner
from packager.addons.server.jobs.scheduler import Scheduler
from packager.addons.server.jobs.store import JobStore
from packager.addons.server.jobs.values import BackgroundJob, JobLimits, SecretJob
from packager.core.errors import PackagerError
from tests.support.cases import read_tables
from tests.support.job_values import new_job, stage
from tests.support.known import known
from tests.support.running_jobs import commands_of, kill_all, run_to_end, runner_of, until


@pytest.fixture
def store(tmp_path: Path) -> Iterator[JobStore]:
    store = JobStore(tmp_path / "jobs")
    yield store
    kill_all(*store.unfinished())


def make(store: JobStore, *words: str, **changes: Any) -> BackgroundJob:
    """Create the job `a`, whose one stage is a command of these words."""
    return store.create(new_job(stages=(stage("build", *words),), **changes))


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def log_of(store: JobStore, name: str = "a") -> list[str]:
    """Lines of the log without their times."""
    return [line.partition(" ")[2] for line in lines(store.get("optimization", name).log)]


def test_stages_run_in_order_and_their_results_are_kept(store: JobStore, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    stages = (
        stage("train", f"append={ran}:train", 'print={"draft": "here"}'),
        stage("build", f"append={ran}:build", "print={}"),
    )
    job = store.create(new_job(stages=stages))

    done = run_to_end(store, job)

    assert (done.status, done.stage, done.attempt, done.failure) == ("completed", 2, 1, "")
    assert lines(ran) == ["train", "build"]
    assert (job.folder / "1-train.json").read_text() == '{"draft": "here"}\n'
    assert (job.folder / "2-build.json").read_text() == "{}\n"
    results = {"1-train.json", "2-build.json"}
    own = {".given.json", "lock", "log.txt", "progress.json", "stage.lock"}
    assert {path.name for path in job.folder.iterdir()} == results | own
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in job.folder.iterdir())


def test_commands_get_folder_environment_and_options_for_programs(store: JobStore) -> None:
    stages = (
        stage("show", "environment=PYTHONPATH"),
        stage("build", "argv=", "{job}/request.json"),
    )
    job = store.create(new_job(stages=stages))

    run_to_end(store, job)

    shown = json.loads((job.folder / "1-show.json").read_text())
    assert shown["cwd"] == str(job.folder)
    assert shown["PYTHONPATH"] == job.asked.stages[0].environment["PYTHONPATH"]
    words = json.loads((job.folder / "2-build.json").read_text())
    assert words == ["argv=", f"{job.folder}/request.json", "--format", "json"]


def with_secrets(words: tuple[str, ...], secrets: dict[str, str]) -> SecretJob:
    stages = (stage("show", *words),)
    return SecretJob(kind="optimization", name="a", document={}, stages=stages, secrets=secrets)


def test_secrets_reach_commands_and_neither_log_nor_database(store: JobStore) -> None:
    token = "hf_" + "a1" * 17
    words = ("environment=HF_TOKEN", f"say=asking with {token}")
    job = store.create(with_secrets(words, {"HF_TOKEN": token}))

    run_to_end(store, job)

    assert json.loads((job.folder / "1-show.json").read_text())["HF_TOKEN"] == token
    log = log_of(store)
    assert token not in "".join(log)
    store.forget_secrets()
    assert store.secrets == {}
    assert (job.folder / "secrets.json").read_text() == '["HF_TOKEN"]'


def test_a_job_whose_secret_is_lost_fails_and_says_so(store: JobStore) -> None:
    job = store.create(with_secrets(("exit=0",), {"HF_TOKEN": "x" * 20}))

    done = run_to_end(JobStore(store.root), job)  # another process than the one that was told

    assert done.status == "failed"
    assert done.failure.startswith("HF_TOKEN was kept in memory only")


def test_the_log_has_what_was_said_with_time_and_stage(store: JobStore) -> None:
    error = {"error": "StepFailed", "message": "no memory", "hint": "buy some", "log": "line\nend"}
    job = make(
        store,
        "say=warning: \x1b[31mred at https://me:secret@hub/x",
        'step={"step": "quantize", "state": "started", "detail": "awq"}',
        'step={"step": "quantize", "state": "finished", "detail": "", "seconds": 2.25}',
        f"error={json.dumps(error)}",
        *("begin=without an end", "exit=6"),
    )

    done = run_to_end(store, job)

    assert (done.status, done.failure) == ("failed", "no memory (hint: buy some)")
    said = [line for line in log_of(store) if line.startswith("build ")][1:]
    assert said == read_tables(__file__)["said"]
    assert log_of(store)[-1] == "job failed: no memory (hint: buy some)"


def test_a_command_without_a_word_about_its_failure_has_its_status(store: JobStore) -> None:
    job = store.create(new_job(stages=(stage("build", "exit=7"), stage("next", "exit=0"))))

    done = run_to_end(store, job)

    assert done.failure == "stage 'build' ended with status 7; its log says more"
    assert (done.status, done.stage) == ("failed", 0)


def test_progress_is_there_while_a_command_runs(store: JobStore, tmp_path: Path) -> None:
    go_on = tmp_path / "go-on"
    step = {"step": "quantize", "state": "running", "detail": "awq", "bytes": 25, "total": 100}
    job = make(store, f"step={json.dumps({**step, 'eta_s': 90})}", f"wait={go_on}")
    Scheduler(store).tick()

    until(lambda: read_progress(job.folder).step is not None)

    progress = read_progress(job.folder)
    assert (progress.share, progress.left_s) == (0.25, 90.0)
    go_on.touch()
    assert run_to_end(store, job).status == "completed"


def test_stopping_ends_the_command_and_what_comes_after_it(store: JobStore, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    job = store.create(
        new_job(stages=(stage("build", "polite=", "sleep=60"), stage("next", f"append={ran}:next")))
    )
    Scheduler(store).tick()
    until(lambda: bool(commands_of(job)))

    began = time.monotonic()
    assert store.stop("optimization", "a").status == "stopping"
    done = run_to_end(store, job)

    assert (done.status, done.failure) == ("stopped", "stopped by request")
    assert time.monotonic() - began < 10
    assert lines(ran) == []


def test_a_job_that_runs_for_too_long_is_stopped(store: JobStore) -> None:
    job = make(store, "sleep=60", limits=JobLimits(run_s=1))

    done = run_to_end(store, job)

    assert (done.status, done.failure) == ("stopped", "MaxRuntimeExceeded")


def test_the_limit_counts_all_starts(store: JobStore, tmp_path: Path) -> None:
    job = make(store, "exit=0", limits=JobLimits(run_s=100))
    write_progress(job.folder, Progress(ran_s=100.5))

    done = run_to_end(store, job)

    assert (done.status, done.failure) == ("stopped", "MaxRuntimeExceeded")


def test_a_directory_that_is_gone_fails_the_job(store: JobStore, tmp_path: Path) -> None:
    where = replace(stage("build", "exit=0"), directory=str(tmp_path / "gone"))

    done = run_to_end(store, store.create(new_job(stages=(where,))))

    assert done.status == "failed"
    assert done.failure == (
        f"the directory {str(tmp_path / 'gone')!r} that stage 'build' runs in cannot be entered"
    )


def test_a_command_that_is_deaf_is_killed(store: JobStore, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    job = make(store, "deaf=", f"append={ran}:deaf", "sleep=60")
    store.claim(1)
    store.begin(job.id)
    lock = take_lock(job.folder / "lock")
    runner = Runner(store=store, job=job, grace_s=0.5)
    stopper = threading.Thread(target=lambda: (until(ran.exists), store.stop(job.kind, job.name)))
    stopper.start()

    runner.run()

    stopper.join()
    os.close(known(lock))
    done = store.get("optimization", "a")
    assert (done.status, done.failure) == ("stopped", "stopped by request")
    assert commands_of(job) == []


@pytest.mark.extended
def test_a_broken_runner_fails_the_job(store: JobStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler, "LOOK_S", 0.01)
    job = make(store, "exit=0")
    failing = [sys.executable, "-c", "import sys; sys.exit(74)"]
    monkeypatch.setattr(scheduler, "start_runner", lambda *given: subprocess.Popen(failing))

    done = run_to_end(store, job)

    assert done.status == "failed"
    assert done.failure == "its runner ended 5 times with status 74; its log says why"


@pytest.mark.parametrize("error", [OSError(11, "Resource temporarily unavailable"), KeyError("x")])
def test_a_scheduler_goes_on_where_a_runner_could_not_be_started(
    store: JobStore, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    told: list[PackagerError] = []
    real = subprocess.Popen

    def fail_once(*given: object, **named: object) -> object:
        monkeypatch.setattr(scheduler.subprocess, "Popen", real)
        raise error

    make(store, "exit=0")
    monkeypatch.setattr(scheduler.subprocess, "Popen", fail_once)
    looking = Scheduler(store, on_error=told.append)
    looking.start()

    until(lambda: store.get("optimization", "a").status == "completed")
    looking.close()

    assert len(told) == 1
    assert told[0].message in (
        "no runner of a job can be started: resource temporarily unavailable",
        "unexpected KeyError: 'x'",
    )


def test_a_command_goes_on_without_its_runner(store: JobStore, tmp_path: Path) -> None:
    ran, go_on = tmp_path / "ran", tmp_path / "go-on"
    words = ("say=before", f"append={ran}:began", f"wait={go_on}", "say=later", "print={}")
    job = make(store, *words, f"append={ran}:ended")
    Scheduler(store).tick()
    until(lambda: lines(ran) == ["began"] and read_progress(job.folder).read > 0)
    os.kill(runner_of(job), signal.SIGKILL)
    second = Scheduler(store)
    until(lambda: not second.tick() or store.get("optimization", "a").attempt == 2)
    go_on.touch()

    done = run_to_end(store, job)

    assert (done.status, done.attempt) == ("completed", 2)
    assert lines(ran) == ["began", "ended"]
    assert (job.folder / "1-build.json").read_text() == "{}\n"
    assert (log_of(store).count("build before"), log_of(store).count("build later")) == (1, 1)


def test_a_command_whose_runner_was_killed_can_be_stopped(store: JobStore, tmp_path: Path) -> None:
    job = make(store, "sleep=60")
    Scheduler(store).tick()
    until(lambda: bool(commands_of(job)))
    os.kill(runner_of(job), signal.SIGKILL)

    store.stop("optimization", "a")
    assert run_to_end(store, job).status == "stopped"
    assert commands_of(job) == []


def test_a_failure_that_no_runner_saw_is_told_by_the_next(store: JobStore, tmp_path: Path) -> None:
    go_on = tmp_path / "go-on"
    error = json.dumps({"error": "StepFailed", "message": "no memory", "hint": ""})
    ran = tmp_path / "ran"
    words = (f"append={ran}:ran", "say=before", f"wait={go_on}", f"error={error}", "exit=6")
    job = make(store, *words)
    Scheduler(store).tick()
    until(lambda: "build before" in log_of(store))
    os.kill(runner_of(job), signal.SIGKILL)
    go_on.touch()
    until(lambda: not commands_of(job))

    done = run_to_end(store, job)

    assert (done.status, done.failure) == ("failed", "no memory")
    assert lines(ran) == ["ran"]


def test_a_command_that_was_killed_is_started_again(store: JobStore, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    job = make(store, f"append={ran}:began", "sleep=1", f"append={ran}:ended")
    Scheduler(store).tick()
    until(lambda: lines(ran) == ["began"])
    for number in commands_of(job):
        os.kill(number, signal.SIGKILL)

    assert run_to_end(store, job).status == "completed"
    assert lines(ran) == ["began", "began", "ended"]


def test_a_command_that_is_killed_each_time_fails_its_job(store: JobStore) -> None:
    job = make(store, f"kill={int(signal.SIGKILL)}")

    done = run_to_end(store, job)

    assert done.status == "failed"
    assert done.failure == "stage 'build' was killed 3 times; look at the memory of this machine"


def test_two_schedulers_run_a_job_once(store: JobStore, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    jobs = [
        store.create(new_job(f"job-{number}", stages=(stage("build", f"append={ran}:{number}"),)))
        for number in range(6)
    ]
    others = [Scheduler(JobStore(store.root), at_once=3) for _ in range(2)]
    for other in others:
        other.start()

    until(lambda: not store.unfinished())
    for other in others:
        other.close()

    assert sorted(lines(ran)) == ["0", "1", "2", "3", "4", "5"]
    assert [store.get("optimization", job.name).attempt for job in jobs] == [1] * 6

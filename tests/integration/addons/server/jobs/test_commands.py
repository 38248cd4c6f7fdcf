"""`packager jobs`, as it is typed."""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from packager.addons.server.jobs import waiting
from packager.addons.server.jobs.store import JobStore
from packager.addons.server.jobs.values import Stage
from packager.pipeline.records import record_document
from tests.support.bench_reports import report, variant
from tests.support.commandline import TINY, Packager, packager_in
from tests.support.job_values import new_job, stage
from tests.support.known import known
from tests.support.lineage_records import build_record
from tests.support.refusals import raises_code
from tests.support.report_values import quality_report
from tests.support.running_jobs import commands_of, kill_all, until


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def environment(home: Path) -> dict[str, str]:
    return {"XDG_STATE_HOME": str(home)}


@pytest.fixture
def store(home: Path) -> Iterator[JobStore]:
    store = JobStore(home / "packager" / "jobs")
    yield store
    kill_all(*store.unfinished())


class Typed:
    """Commands of one user."""

    def __init__(self, packager: Packager, directory: Path, environment: dict[str, str]) -> None:
        self._packager = packager
        self._directory = directory
        self._environment = environment

    def __call__(self, *words: str, status: int = 0) -> str:
        done = self._packager("jobs", *words, cwd=self._directory, env=self._environment)
        assert done.status == status, done.err
        self.err = done.err
        return done.out


@pytest.fixture
def jobs(tmp_path: Path, environment: dict[str, str]) -> Typed:
    return Typed(packager_in(tmp_path / "as"), tmp_path, environment)


def test_a_command_is_queued_run_in_its_directory_and_kept(jobs: Typed, tmp_path: Path) -> None:
    assert jobs("add", "nightly", "--", "version", "--json") == "nightly\n"
    assert jobs.err == "nobody runs jobs here: `packager jobs run` does\n"

    assert jobs("run") == "nightly completed\n"

    shown = json.loads(jobs("show", "nightly", "--format", "json"))
    assert (shown["status"], shown["kind"], shown["starts"]) == ("completed", "command", 1)
    assert shown["document"] == {"command": ["version", "--json"]}
    assert shown["progress"] is None
    [ran] = shown["stages"]
    assert (ran["state"], ran["command"]) == ("complete", ["version", "--json"])
    assert "packager" in Path(ran["result"]).read_text()
    assert jobs("wait", "nightly") == "nightly completed\n"
    assert jobs("delete", "nightly") == "nightly\n"
    assert jobs("ls") == ""
    assert not Path(shown["folder"]).exists()


def test_nothing_is_made_by_looking(jobs: Typed, home: Path) -> None:
    assert jobs("ls") == ""
    assert jobs.err == "there are no jobs\n"
    assert json.loads(jobs("ls", "--format", "json")) == {"jobs": [], "next": None}
    jobs("show", "nightly", status=66)
    assert not (home / "packager" / "jobs").exists()


def test_a_job_that_fails_says_why_and_the_statuses_do(jobs: Typed) -> None:
    jobs("add", "nightly", "--", "plan", "--model", "./nowhere", "--instance", "local")

    assert jobs("run", status=6) == "nightly failed\n"

    assert "there is no directory './nowhere'" in jobs.err
    assert jobs("wait", "nightly", status=6) == "nightly failed\n"
    assert "has failed: there is no directory './nowhere' (hint: " in jobs.err
    lines = [json.loads(line) for line in jobs("logs", "nightly", "--format", "json").splitlines()]
    assert {line["stage"] for line in lines} == {"job", "plan"}
    assert "error: there is no directory './nowhere'" in [line["text"] for line in lines]


def test_a_stopped_job_and_one_that_does_not_end_have_statuses_of_their_own(jobs: Typed) -> None:
    jobs("add", "nightly", "--", "version")

    jobs("wait", "nightly", "--timeout", "0.1", status=69)
    assert "command job 'nightly' is queued after 0.1 s" in jobs.err
    assert jobs("stop", "nightly") == "nightly stopped\n"
    jobs("wait", "nightly", status=130)
    assert "was stopped: stopped by request" in jobs.err


def test_several_jobs_share_one_timeout(store: JobStore, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = store.create(new_job("first")), store.create(new_job("second"))
    now = [100.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds
        if now[0] > 101.5 and store.get(first.kind, "first").status == "queued":
            store.stop(first.kind, "first")

    clock = SimpleNamespace(monotonic=lambda: now[0], sleep=sleep)
    monkeypatch.setattr(waiting, "time", clock)

    with raises_code("StillRunning", match="'second' is queued after 2 s"):
        waiting.wait_for_all(store, (first, second), 2.0, lambda job: None)

    assert 102 <= now[0] < 102.5


def test_a_failed_job_counts_for_more_than_a_stopped_one(jobs: Typed) -> None:
    jobs("add", "stopped", "--", "version")
    jobs("stop", "stopped")
    jobs("add", "bad", "--", "plan", "--model", "./nowhere", "--instance", "local")
    jobs("run", status=6)

    assert jobs("wait", "stopped", "bad", status=6) == "stopped stopped\nbad failed\n"


def test_a_job_that_waited_for_too_long_is_told_of(jobs: Typed) -> None:
    jobs("add", "late", "--wait-limit", "1s", "--", "version")
    time.sleep(1.1)

    assert jobs("run", status=130) == "late stopped\n"
    assert "late: stopped, MaxPendingTimeExceeded\n1 job: 1 stopped\n" in jobs.err


def test_no_job_is_deleted_where_one_has_not_ended(jobs: Typed, store: JobStore) -> None:
    jobs("add", "ended", "--", "version")
    jobs("stop", "ended")
    jobs("add", "waiting", "--", "version")

    assert jobs("delete", "ended", "waiting", status=2) == ""
    assert [job.name for job in store.find("ended")] == ["ended"]


def test_arguments_that_are_not_utf8_are_refused(jobs: Typed, store: JobStore) -> None:
    jobs("add", "nightly", "--", "plan", "--model", os.fsdecode(b"model-\xff"), status=2)

    assert "error: job 'nightly' has text that is not valid UTF-8" in jobs.err
    assert list(store.root.glob("*")) == []


def test_of_jobs_with_one_name_the_kind_says_which(jobs: Typed, store: JobStore) -> None:
    store.create(new_job("nightly"))
    store.create(new_job("nightly", kind="benchmark"))

    jobs("show", "nightly", status=2)
    assert "jobs of several kinds are named 'nightly': benchmark, optimization" in jobs.err
    shown = jobs("show", "nightly", "--kind", "benchmark")
    assert shown.startswith("job        nightly, benchmark\n")


def test_a_job_shows_what_it_measured_before_and_after(jobs: Typed, store: JobStore) -> None:
    job = store.create(new_job("measured"))
    states = tuple(
        variant(name, levels=(4,), tpot_ms=tpot, ttft_ms=50.0)
        for name, tpot in (("original", 10.0), ("optimized", 20.0))
    )
    record = build_record(bench=report(states), quality=quality_report())
    job.record.write_bytes(record_document(record))

    lines = jobs("show", "measured").splitlines()
    told = json.loads(jobs("show", "measured", "--format", "json"))["measured"]

    at = lines.index("before and after")
    assert lines[at + 1].startswith("tokens/s: slower at 1 of 1 loads")
    assert [line.split()[0] for line in lines[-2:]] == ["Original", "Optimized"]
    assert told["gates"]["throughput"]["verdict"] == "worse"
    assert told["states"][1]["configuration"] == "Optimized"
    assert told["quality"]["quality"]["kld_mean"] == quality_report().quality.kld_mean


def test_lists_are_chosen_and_paged(jobs: Typed, store: JobStore) -> None:
    for number in range(3):
        store.create(new_job(f"llama-{number}"))
    store.create(new_job("qwen", kind="benchmark"))

    first = json.loads(jobs("ls", "--name", "llama", "--limit", "2", "--format", "json"))
    words = ("--name", "llama", "--after", first["next"], "--format", "json")
    second = json.loads(jobs("ls", *words))

    assert [job["name"] for job in first["jobs"]] == ["llama-2", "llama-1"]
    assert [job["name"] for job in second["jobs"]] == ["llama-0"]
    assert second["next"] is None
    row = jobs("ls", "--kind", "benchmark").splitlines()[1].split()
    assert row[:4] == ["qwen", "benchmark", "queued", "0/1"]
    assert jobs("ls", "--status", "failed") == ""


def test_a_job_that_is_stopped_without_a_runner_ends(jobs: Typed, store: JobStore) -> None:
    store.create(new_job("nightly", stages=(stage("build", "sleep=60"),)))
    store.claim(1)  # as a server does that is killed then

    assert jobs("stop", "nightly") == "nightly stopping\n"

    jobs("wait", "nightly", "--timeout", "30", status=130)


def test_interrupting_the_queue_leaves_a_job_running_and_its_log_can_be_followed(
    jobs: Typed, store: JobStore, environment: dict[str, str], tmp_path: Path
) -> None:
    go_on = tmp_path / "go-on"
    words = ("say=begun", f"wait={go_on}", "say=ended")
    job = store.create(new_job("nightly", stages=(stage("build", *words),)))
    command = [sys.executable, "-m", "packager", "jobs"]
    settings = {**os.environ, **environment}
    running = subprocess.Popen([*command, "run"], env=settings, stderr=subprocess.PIPE, text=True)
    until(lambda: " build begun\n" in job.log.read_text() if job.log.exists() else False)
    running.send_signal(signal.SIGINT)

    _, told = running.communicate(timeout=60)
    assert running.returncode == 130
    assert "jobs that run go on" in told
    assert commands_of(job) != []
    followed = subprocess.Popen(
        [*command, "logs", "nightly", "--follow", "--tail", "1"],
        env=settings,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert known(followed.stdout).readline().endswith(" build    begun\n")
    go_on.touch()
    rest = followed.communicate(timeout=60)[0].splitlines()
    assert [line.partition(" ")[2] for line in rest] == ["build    ended", "build    complete"]
    assert store.get("optimization", "nightly").status == "completed"


def test_the_command_of_a_rendered_pod_runs(jobs: Typed, store: JobStore, tmp_path: Path) -> None:
    request = {"model": str(TINY), "instance": "local", "base": "scratch"}
    words = ("build", "--request", "{job}/request.json", "--record", "{job}/record.json")
    store.create(
        new_job(
            "nightly",
            stages=(Stage("build", (*words, "--output", f"oci:{tmp_path / 'out'}")),),
            files={"request.json": json.dumps(request).encode()},
        )
    )
    rendered = jobs("render", "nightly", "--image", "packager:1", "--memory", "4GiB")
    assert "no shared cache is named" in jobs.err
    config_map, manifest = yaml.safe_load_all(rendered)
    [container] = manifest["spec"]["template"]["spec"]["containers"]
    pod = tmp_path / "pod"
    for mount in container["volumeMounts"]:
        if mount["name"] == "files":
            place = pod / Path(mount["mountPath"]).relative_to("/var/lib/packager-job")
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(base64.b64decode(config_map["binaryData"][mount["subPath"]]))
    args = [word.replace("/var/lib/packager-job", str(pod)) for word in container["args"]]

    done = packager_in(tmp_path)(*args, status=0)

    assert json.loads((pod / "record.json").read_text())["digest"] == json.loads(done.out)["digest"]


def test_a_pod_without_what_is_here_is_warned_of(jobs: Typed) -> None:
    jobs("add", "nightly", "--", "plan", "--model", str(TINY), "--instance", "local")

    jobs("render", "nightly", "--image", "packager:1", "--secret", "aws")
    assert "is a file or directory here; pods need a --claim that has it" in jobs.err
    jobs("render", "nightly", "--image", "packager:1", "--memory", "lots", status=2)
    assert "error: 'lots' is not a size\nhint: write it as 4GiB, 500MB or bytes\n" in jobs.err

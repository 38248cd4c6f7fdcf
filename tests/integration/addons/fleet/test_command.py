"""`packager warm` with a quantizer that another package brings: plans, runs, ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import rfc8785

from tests.support.cases import cases
from tests.support.commandline import TINY, Done, packager_in
from tests.support.demo_builds import tools_dir as tools_dir
from tests.support.doubles.fake_hub import FakeHub
from tests.support.running_jobs import until
from tests.support.tool_steps import OUTSIDE

Run = Callable[..., Done]
Plan = Callable[..., None]
FIRST = ("one", "--plan", "plan.json", "--index", "0")


@pytest.fixture
def env(tools_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(OUTSIDE))
    monkeypatch.setenv("PACKAGER_TOOLS", str(tools_dir))


@pytest.fixture
def warm(tmp_path: Path, env: None) -> Run:
    run = packager_in(tmp_path)
    return lambda *words, **more: run("warm", *words, **more)


def write_grid(place: Path, quantize: Sequence[str], **fields: Any) -> None:
    defaults = {"model": str(TINY), "family": "vllm"}
    axes = {"instance": ["local", "ml.g5.xlarge"], "quantize": list(quantize)}
    grid = {"defaults": defaults, "axes": axes, **fields}
    (place / "grid.json").write_text(json.dumps(grid))


@pytest.fixture
def plan(tmp_path: Path, warm: Run) -> Plan:
    """Return what plans ways to quantize, into `plan.json`."""

    def planned(*quantize: str, **fields: Any) -> None:
        write_grid(tmp_path, quantize, **fields)
        warm("plan", "grid.json", "--output", "plan.json", status=0)

    return planned


def plan_in(place: Path) -> dict[str, Any]:
    return dict(json.loads((place / "plan.json").read_text()))


def rewrite(place: Path, **changes: Any) -> None:
    """Change the plan's first job."""
    document = plan_in(place)
    document["jobs"][0].update(changes)
    (place / "plan.json").write_text(json.dumps(document))


def test_a_plan_names_each_artifact_once_and_is_canonical(tmp_path: Path, warm: Run) -> None:
    write_grid(tmp_path, ["none", "demo-copy,seed=1", "demo-copy,seed=2"])

    done = warm("plan", "grid.json", "--output", "plan.json", status=0)

    planned = plan_in(tmp_path)
    counts = [planned[name] for name in ("requests", "duplicates", "idle")]
    assert [*counts, len(planned["jobs"])] == [6, 2, 2, 2]
    assert (tmp_path / "plan.json").read_bytes() == rfc8785.dumps(planned)
    assert "6 requests, 2 jobs, 0 there already, 2 shared, 2 with nothing to do" in done.out
    schema = json.loads(warm("schema").out)
    jsonschema.validate(planned, schema)
    first = (tmp_path / "plan.json").read_bytes()
    warm("plan", "grid.json", "--output", "plan.json")
    assert (tmp_path / "plan.json").read_bytes() == first


def test_a_plan_works_from_another_directory(tmp_path: Path, warm: Run, plan: Plan) -> None:
    (tmp_path / "model").symlink_to(TINY)
    axes = {"quantize": ["demo-copy"], "model": ["./model"], "instance": ["local"]}
    plan(axes=axes)
    (elsewhere := tmp_path / "elsewhere").mkdir()

    warm("one", "--plan", "../plan.json", "--index", "0", cwd=elsewhere, status=0)


def test_a_run_does_what_is_missing_and_learns_how_long_it_takes(tmp_path: Path, warm: Run) -> None:
    write_grid(tmp_path, ["demo-copy,seed=1"])
    assert warm("grid.json").status == 0  # `run` is what is meant

    write_grid(tmp_path, ["demo-copy,seed=1", "demo-copy,seed=2"], host_instance="ml.c7i.xlarge")
    planned = json.loads(warm("plan", "grid.json", "--format", "json").out)

    [job], [hit] = planned["jobs"], planned["hits"]
    assert job["seconds_from"] == "past"
    assert job["usd"] > 0
    assert hit["step"] == "quantize"
    done = warm("run", "grid.json", "--format", "json")
    assert json.loads(done.out)["counts"] == {"built": 1}
    assert warm("run", "grid.json").out.strip() == "nothing to do"


def test_a_small_build_does_not_estimate_another_method(tmp_path: Path, warm: Run) -> None:
    write_grid(tmp_path, ["demo-copy,seed=1"])
    assert warm("grid.json").status == 0  # a directory's name is the same for both

    axes = {"quantize": ["awq,group=64"], "instance": ["ml.g5.xlarge"]}
    write_grid(tmp_path, [], axes=axes)

    [job] = warm("plan", "grid.json", "--format", "json").document["jobs"]
    assert (job["seconds_from"], job["instance"]) == ("estimate", "ml.c7i.xlarge")
    assert 10 < job["seconds"] < 600  # 256 short texts on one thread
    assert job["usd"] == pytest.approx(job["seconds"] / 3600 * 0.214, rel=0.05)
    assert "ml.c7i.xlarge" in warm("plan", "grid.json").out


def test_an_impossible_request_is_listed_and_stops_nobody(tmp_path: Path, warm: Run) -> None:
    write_grid(
        tmp_path,
        ["demo-copy"],
        shapes=[{}, {"tp_degree": 64}, {"draft": "auto", "max_batch": 0}],
        exclude=[{"instance": "ml.g5.*"}],
    )

    done = warm("run", "grid.json", "--format", "json", status=3)

    document = json.loads(done.out)
    assert document["counts"] == {"built": 1}
    rejected, invalid = document["refused"]
    assert rejected["findings"][0]["severity"] == "error"
    assert invalid["error"].startswith("max_batch: input should be greater than or equal to 1")
    assert "refused: " in done.err


def test_a_plan_runs_without_its_grid_and_only_once(tmp_path: Path, warm: Run, plan: Plan) -> None:
    ran = tmp_path / "ran"
    plan(*(f"demo-slow,seed={seed},ran={ran}" for seed in range(3)))
    (tmp_path / "grid.json").unlink()

    first, second = warm("run", "plan.json", "--jobs", "3"), warm("run", "plan.json")

    assert (first.out.strip(), second.out.strip()) == ("3 built", "3 there")
    assert ran.read_text() == "xxx"


def test_a_model_of_a_hub_is_fetched_once_at_the_commit_that_was_planned(
    tmp_path: Path, warm: Run, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {path.name: path.read_bytes() for path in TINY.iterdir() if path.is_file()}
    with FakeHub() as hub:
        hub.add("acme/tiny", files)
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
        monkeypatch.setenv("HF_HUB_DISABLE_XET", "1")
        ways = ["demo-copy,seed=1", "demo-copy,seed=2"]
        axes = {"instance": ["local"], "model": ["acme/tiny"], "quantize": ways}
        plan(axes=axes)
        assert not list(tmp_path.glob("hf/**/*.safetensors"))

        done = warm("run", "plan.json", "--format", "json")
        again = warm("run", "plan.json", "--format", "json")

    fetch, *steps = plan_in(tmp_path)["jobs"]
    name, _, commit = fetch["request"]["model"].partition("@")
    assert (fetch["step"], name, len(commit)) == ("fetch", "acme/tiny", 40)
    assert [(job["needs"], job["stage"], len(job["key"])) for job in steps] == [([0], 1, 64)] * 2
    assert json.loads(done.out)["counts"] == {"built": 3}, done.out
    assert json.loads(again.out)["counts"] == {"there": 3}


@cases("permanent")
def test_what_will_not_work_next_time_either_ends_with_a_permanent_status(
    tmp_path: Path, warm: Run, plan: Plan, changes: dict[str, Any], status: int, message: str
) -> None:
    plan("demo-copy")
    if "request" in changes:
        changes = {"request": {"model": str(TINY), **changes["request"]}}
    rewrite(tmp_path, **changes)

    done = warm(*FIRST, status=status)

    assert message in done.err


@cases("failed")
def test_failed_steps_say_whether_to_retry(warm: Run, plan: Plan, method: str, status: int) -> None:
    plan(method)

    assert warm(*FIRST).status == status


def test_a_wrong_index_or_plan_is_permanent(warm: Run, plan: Plan) -> None:
    plan("demo-copy")

    assert warm("one", "--plan", "plan.json", "--index", "1").status == 64
    assert warm(*FIRST, "--first", "7").status == 64
    assert warm("one", "--plan", "none.json", "--index", "0").status == 66


def test_a_result_that_only_we_have_is_handed_on(tmp_path: Path, warm: Run, plan: Plan) -> None:
    plan("demo-copy")
    warm(*FIRST)

    again = warm(*FIRST, "--cache-shared", f"dir:{tmp_path / 'shared'}", status=0)

    assert json.loads(again.out)["reused"] is True
    assert list((tmp_path / "shared").rglob("*.json")) != []


def test_an_unwritable_shared_store_is_no_success(tmp_path: Path, warm: Run, plan: Plan) -> None:
    plan("demo-copy")
    (tmp_path / "file").write_text("no directory")

    done = warm(*FIRST, "--cache-shared", f"dir:{tmp_path / 'file'}", status=75)

    assert "could not be put where others find it" in done.err


def test_sigterm_ends_a_job_with_75_and_takes_its_tool_along(tmp_path: Path, plan: Plan) -> None:
    pids = tmp_path / "pids"
    plan(f"demo-orphan,pids={pids}")

    job = start(tmp_path, *FIRST)
    wait_for(pids)
    job.send_signal(signal.SIGTERM)

    assert job.wait(120) == 75
    until(lambda: all_gone(pids))


@pytest.mark.extended
@pytest.mark.parametrize(
    ("how", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 130), (signal.SIGKILL, -9)]
)
def test_a_run_that_is_ended_leaves_nothing_behind_and_the_next_one_goes_on(
    tmp_path: Path, warm: Run, plan: Plan, how: signal.Signals, status: int
) -> None:
    pids = tmp_path / "pids"
    plan("demo-copy", f"demo-orphan,pids={pids}")

    run = start(tmp_path, "run", "plan.json", "--jobs", "2")
    wait_for(pids)
    until(lambda: "1 there already" in warm("plan", "grid.json").out, within_s=120)
    run.send_signal(how)

    assert run.wait(120) == status
    until(lambda: all_gone(pids))


def start(place: Path, *words: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "packager", "warm", *words], cwd=place, stderr=subprocess.DEVNULL
    )


def wait_for(pids: Path) -> None:
    until(lambda: pids.exists() and len(pids.read_text().split()) == 2, within_s=120)


def all_gone(pids: Path) -> bool:
    return not any(os.path.lexists(f"/proc/{pid}") for pid in pids.read_text().split())

"""Stages of the GPU campaign: their limit, their results, and what is run again."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks.campaign.stages import Failure, Journal, Stage, run_limited, run_stages, work_on
from tests.support.places import ROOT
from tests.support.processes import is_alive
from tests.support.running_jobs import until

# Its child ignores SIGTERM, as a worker may that is deep in a library.
STUBBORN = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = os.fork()
if child:
    open(sys.argv[1], "w").write(str(child))
time.sleep(600)
"""


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path)


def stage(name: str, after: tuple[str, ...] = ()) -> Stage:
    return Stage(name=name, does="something", work=lambda: {"answer": 42}, after=after)


@pytest.mark.extended
def test_an_endless_stage_is_killed_with_its_children(journal: Journal, tmp_path: Path) -> None:
    told = tmp_path / "child"

    found = run_limited([sys.executable, "-c", STUBBORN, str(told)], journal, "endless", 8)

    assert found["state"] == "timed out"
    assert found["why"] == "it had not ended after 6 s"
    assert journal.read("endless") == found
    until(lambda: not is_alive(int(told.read_text())))


def test_what_a_stage_left_running_is_ended_with_it(journal: Journal, tmp_path: Path) -> None:
    left = "import os, sys, time\nif os.fork() == 0: time.sleep(600)\n"
    command = [sys.executable, "-c", left + "print(os.getpid(), flush=True)"]

    run_limited(command, journal, "untidy", 600)

    leader = int(journal.log("untidy").read_text())
    with pytest.raises(ProcessLookupError):
        while True:  # what is left is a zombie until its new parent looks
            os.killpg(leader, 0)
            time.sleep(0.05)


def test_a_process_without_a_result_has_failed(journal: Journal) -> None:
    found = run_limited([sys.executable, "-c", "raise SystemExit(7)"], journal, "silent", 600)

    assert (found["state"], found["why"]) == ("failed", "its process ended with status 7")


def test_a_failed_run_discards_the_result_of_an_earlier_one(journal: Journal) -> None:
    journal.write("twice", {"state": "done", "figures": {}})

    run_limited([sys.executable, "-c", "raise SystemExit(1)"], journal, "twice", 600)

    assert not journal.is_done("twice")


def test_a_stage_that_is_done_is_not_run_again(journal: Journal, tmp_path: Path) -> None:
    journal.write("first", {"state": "done", "figures": {"answer": 42}})
    said: list[str] = []

    found = run_stages([stage("first")], journal, ["/nothing"], 600, said.append)

    assert found == {"first": {"state": "done", "figures": {"answer": 42}}}
    assert said == ["first: done before"]


def test_a_stage_is_not_run_without_the_ones_that_it_needs(journal: Journal) -> None:
    journal.write("model", {"state": "failed"})
    stages = [stage("quantize", after=("machine", "model")), stage("compare", after=("quantize",))]
    journal.write("machine", {"state": "done"})

    found = run_stages(stages, journal, ["/nothing"], 600, lambda text: None)

    assert found == {
        "quantize": {"state": "not run", "why": "needs model"},
        "compare": {"state": "not run", "why": "needs quantize"},
    }


def test_a_stage_writes_its_result(journal: Journal, capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> dict[str, object]:
        raise Failure("no NVIDIA GPU is here", "take --cpu")

    assert work_on(stage("good"), journal) == 0
    assert work_on(Stage(name="bad", does="fail", work=fail), journal) == 1

    assert journal.read("good") == {"state": "done", "figures": {"answer": 42}}
    assert journal.read("bad")["why"] == "no NVIDIA GPU is here"
    assert capsys.readouterr().err == "error: no NVIDIA GPU is here\n"


def test_a_campaign_that_is_told_to_end_ends_its_stage(tmp_path: Path) -> None:
    text = (
        "import signal, sys\n"
        "from pathlib import Path\n"
        "from benchmarks.campaign.stages import Journal, run_limited\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))\n"
        f"stubborn = [sys.executable, '-c', {STUBBORN!r}, sys.argv[2]]\n"
        "run_limited(stubborn, Journal(Path(sys.argv[1])), 'endless', 600)\n"
    )
    told = tmp_path / "child"
    campaign = subprocess.Popen([sys.executable, "-c", text, tmp_path, told], cwd=ROOT)
    while not told.exists() or not told.read_text():
        assert campaign.poll() is None
        time.sleep(0.05)
    child = int(told.read_text())

    campaign.terminate()

    assert campaign.wait(60) == 143
    until(lambda: not is_alive(child))

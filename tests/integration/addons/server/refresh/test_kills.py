"""Turns that are killed with SIGKILL: they go on, and nothing is done twice to its end."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from packager.addons.server.refresh.journal import RefreshJournal
from packager.addons.server.refresh.turn import STAGES
from tests.support.places import ROOT
from tests.support.refusals import raises_code

# Stages whose work is a line in a file; the process is killed before or after one of them.
PROGRAM = """
import os, signal, sys
from pathlib import Path
from types import SimpleNamespace
from packager.addons.server.refresh.journal import RefreshJournal
from packager.addons.server.refresh.run import HeadRefresh

folder, point, verdict = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
RESULTS = {
    "collect": {"enough": True, "digest": "1", "image": "tiny:1", "id": "sha256:1"},
    "train": {"head": "/head"}, "build": {"image": "tiny:head-1"},
    "gate": {"decision": "yes"}, "watch": {"verdict": verdict},
}

def stage(name):
    def work(*_):
        if point == f"{name} begun":
            os.kill(os.getpid(), signal.SIGKILL)
        with (folder / "work").open("a") as file:
            file.write(name + "\\n")
        if point == f"{name} worked":
            os.kill(os.getpid(), signal.SIGKILL)
        return RESULTS.get(name, {})
    return work

names = ("collect", "train", "build", "measure", "gate", "roll-out", "watch", "back")
work = SimpleNamespace(
    say=lambda line: None, spec=SimpleNamespace(head="", drift=None),
    **{name.replace("-", "_"): stage(name) for name in names},
)
print(HeadRefresh(journal=RefreshJournal(folder), work=work).run().outcome)
"""


def run(folder: Path, point: str = "", verdict: str = "well") -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-c", PROGRAM, str(folder), point, verdict]
    return subprocess.run(words, capture_output=True, text=True, timeout=60, check=False, cwd=ROOT)


def done_in(folder: Path) -> list[str]:
    lines = (folder / "journal.jsonl").read_text().splitlines()
    entries: list[dict[str, Any]] = [json.loads(line) for line in lines]
    return [entry["stage"] for entry in entries if entry["state"] == "done"]


@pytest.mark.parametrize("moment", ["begun", "worked"])
@pytest.mark.parametrize("stage", STAGES)
def test_a_killed_turn_goes_on_and_each_stage_is_done_once(
    tmp_path: Path, stage: str, moment: str
) -> None:
    verdict, outcome = ("worse", "back") if stage == "back" else ("well", "served")

    killed = run(tmp_path, f"{stage} {moment}", verdict)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    again = run(tmp_path, "", verdict)

    assert again.stdout.strip() == outcome, again.stderr
    expected = [one for one in STAGES if one != "back" or verdict == "worse"]
    assert done_in(tmp_path) == expected
    worked = (tmp_path / "work").read_text().split()
    repeated = [stage] if moment == "worked" else []
    assert sorted(worked) == sorted([*expected, *repeated])


def test_half_a_line_is_no_entry_and_is_cut_off(tmp_path: Path) -> None:
    run(tmp_path, "train begun")
    place = tmp_path / "journal.jsonl"
    whole = place.read_bytes()
    place.write_bytes(whole + b'{"schema_version": 1, "turn": 1, "stage": "tr')

    assert run(tmp_path).stdout.strip() == "served"
    assert done_in(tmp_path) == list(STAGES[:-1])


def test_one_command_at_a_time_changes_a_deployment(tmp_path: Path) -> None:
    journal = RefreshJournal(tmp_path)
    with journal.locked():
        done = run(tmp_path)
        with raises_code("Unavailable"), RefreshJournal(tmp_path).locked():
            pass
    assert "another refresh" in done.stderr
    assert journal.turns() == ()


@pytest.mark.parametrize("line", ['{"schema_version": 2}', "[1]", '{"schema_version": 1}', "x"])
def test_a_journal_of_another_form_is_refused(tmp_path: Path, line: str) -> None:
    (tmp_path / "journal.jsonl").write_text(line + "\n")
    with raises_code("ModelRefused"):
        RefreshJournal(tmp_path).turns()

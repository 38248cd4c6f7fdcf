"""`make bench-all`: one table of what every benchmark held against its targets.

The benchmarks are stubs that end in each way that a benchmark may end; the real ones are held to
the form of their last line.
"""

from __future__ import annotations

import ast
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.cases import cases_of, read_tables
from tests.support.places import ROOT
from tests.support.running_jobs import until

cases = cases_of(__file__)

ALL = ROOT / "benchmarks" / "all.py"
MET = """
import json, sys
print("some progress")
rows = [{"name": "ratio", "target": "≤ 0.5", "figure": 0.25, "met": True},
        {"name": "same", "target": "yes", "figure": True, "met": True}]
print(json.dumps({"benchmark": "met", "compared": rows, "targets_met": True}))
"""
MISSED = """
import json, sys
rows = [{"name": "wall_s", "target": "≤ 1", "figure": 2.5, "met": False},
        {"name": "share", "target": "≤ 1", "figure": None, "met": False}]
print(json.dumps({"compared": rows, "targets_met": False}))
sys.exit(1)
"""
FAILED = "raise SystemExit('no engine is here')"
SILENT = "print('all is well')"
LYING = """
import json, sys
rows = [{"name": "ratio", "target": "≤ 0.5", "figure": 0.25, "met": True}]
print(json.dumps({"compared": rows, "targets_met": True}))
sys.exit(3)
"""
BAD = {"missed": MISSED, "failed": FAILED, "silent": SILENT, "lying": LYING}
SLOW = "import time; print('begun', flush=True); time.sleep(600)"


def stubs(place: Path, **scripts: str) -> Path:
    for name, text in scripts.items():
        (place / f"{name}.py").write_text(text)
    return place


def run(place: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ALL), "--folder", str(place), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_every_target_is_a_row_and_all_met_is_status_zero(tmp_path: Path) -> None:
    done = run(stubs(tmp_path, first=MET, second=MET), "first", "second")

    assert done.returncode == 0, done.stderr
    *table, last = done.stdout.splitlines()
    assert table == read_tables(__file__)["all_met"]
    assert json.loads(last)["targets_met"] is True
    assert "some progress" in done.stderr


@cases("missed")
def test_a_miss_is_a_row_among_others(tmp_path: Path, script: str, rows: list[list[str]]) -> None:
    done = run(
        stubs(tmp_path, bad=BAD[script], good=MET), "bad", "good", "--json", f"{tmp_path}/x.json"
    )

    assert done.returncode == 1
    document = json.loads((tmp_path / "x.json").read_text())
    assert [[row["target"], row["figure"]] for row in document["rows"]][:-2] == rows
    assert [row["met"] for row in document["rows"][-2:]] == [True, True]
    assert document["rows"][len(rows) - 1]["met"] is False
    assert (document["finished"], document["targets_met"]) == (True, False)


def test_without_the_published_measurements_their_benchmark_is_not_run(tmp_path: Path) -> None:
    done = run(stubs(tmp_path, predict=FAILED, plan=MET), "predict", "plan")

    assert done.returncode == 0, done.stdout
    assert "not run: needs --data DIR" in done.stdout
    assert "2 of 2 targets met" in done.stdout


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_run_that_is_ended_shows_what_was_measured(tmp_path: Path, number: int) -> None:
    place, file = stubs(tmp_path, first=MET, slow=SLOW), tmp_path / "x.json"
    command = [sys.executable, str(ALL), "--folder", str(place), "first", "slow"]
    process = subprocess.Popen(
        [*command, "--json", str(file)], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    until(file.is_file)
    children = _children(process.pid)

    os.kill(process.pid, number)
    out, _ = process.communicate(timeout=40)

    document = json.loads(file.read_text())
    assert [row["benchmark"] for row in document["rows"]] == ["first", "first"]
    assert (document["finished"], document["targets_met"]) == (False, False)
    if number == signal.SIGKILL:
        for child in children:
            os.kill(child, signal.SIGKILL)
        return
    assert process.returncode == 130
    assert "2 of 2 targets met" in out
    assert json.loads(out.splitlines()[-1])["finished"] is False
    assert not any(Path(f"/proc/{child}").exists() for child in children)


def _children(pid: int) -> list[int]:
    listed = Path(f"/proc/{pid}/task/{pid}/children")
    until(lambda: listed.read_text() != "")
    return [int(word) for word in listed.read_text().split()]


def test_every_benchmark_is_run_and_ends_with_what_it_compared() -> None:
    """A script that names `targets` is a benchmark; each is in the list and uses `verdict`."""
    listed = run(ROOT / "benchmarks", "--list").stdout.split()

    folder = ROOT / "benchmarks"
    judged = {
        path.stem
        for path in folder.glob("*.py")
        if path.stem not in ("all", "judging") and "verdict(" in path.read_text()
    }
    told = {path.stem for path in folder.glob("*.py") if "targets_met" in path.read_text()}
    assert judged == set(listed)
    assert told - {"all", "judging"} <= set(listed)
    for name in listed:
        ast.parse((folder / f"{name}.py").read_text())

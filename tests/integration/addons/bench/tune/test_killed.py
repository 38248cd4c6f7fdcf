"""A tune that is killed goes on: the same winner from the same number of measurements."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from packager.addons.bench.tune.journal import Event, Rated, open_journal
from packager.core.errors import UsageError
from tests.support.cases import cases
from tests.support.known import known
from tests.support.places import ROOT
from tests.support.tuning import ASKED, STARTED
from tests.support.tuning_process import WAITING

pytestmark = pytest.mark.extended


def started(journal: Path, last: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.support.tuning_process", str(journal), str(last)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def killed_at(journal: Path, last: int) -> None:
    """Start a tune and kill it in its `last` work, which it has not written down."""
    with started(journal, last) as process:
        assert known(process.stdout).readline() == f"{WAITING}\n"
        process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL


def ended(journal: Path) -> dict[str, Any]:
    """Run a tune to its end; return what it found."""
    with started(journal, 0) as process:
        out, _ = process.communicate()
    assert process.returncode == 0
    return dict(json.loads(out))


def measurements(journal: Path) -> list[tuple[str, int, float]]:
    return [
        (one.candidate, one.round, one.loads[0].metrics["output_token_throughput"].avg)
        for one in events_of(journal)
        if isinstance(one, Rated)
    ]


def events_of(journal: Path) -> list[Event]:
    with open_journal(journal, ASKED, now=STARTED) as found:
        return found.events


@cases("killed")
def test_killed_twice_it_ends_as_one_that_was_not(tmp_path: Path, first: int, second: int) -> None:
    whole = tmp_path / "whole.jsonl"
    expected = ended(whole)
    journal = tmp_path / "killed.jsonl"

    killed_at(journal, first)
    killed_at(journal, second)
    found = ended(journal)

    assert found["best"] == expected["best"] == "--quantizeawq--draftngram"
    assert measurements(journal) == measurements(whole)
    assert len(found["work"]) < len(expected["work"])  # what was written down is not done again


def test_two_at_once_are_refused_and_the_first_goes_on(tmp_path: Path) -> None:
    journal = tmp_path / "tune.jsonl"
    with started(journal, 2) as process:
        assert known(process.stdout).readline() == f"{WAITING}\n"

        with (
            pytest.raises(UsageError, match="another tune is at work"),
            open_journal(journal, ASKED, now=STARTED),
        ):
            pass
        process.kill()

    assert ended(journal)["best"] == "--quantizeawq--draftngram"

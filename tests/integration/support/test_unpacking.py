"""What runs of these tests share is whole, whenever a run before was killed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.places import ROOT
from tests.support.unpacking import MARKER, fill_once

FILES = [f"{number:02}" for number in range(40)]


def fill(work: Path) -> None:
    """Write slowly, through a child that goes on when we are killed, as tar does."""
    slow = "for n in $*; do echo whole > $n; sleep 0.01; done"
    subprocess.run(["sh", "-c", slow, "sh", *FILES], cwd=work, check=True)


def whole(place: Path) -> bool:
    return all((place / name).read_text() == "whole\n" for name in FILES)


PROGRAM = (
    "import sys; from pathlib import Path\n"
    "from tests.integration.support.test_unpacking import fill, fill_once\n"
    "print('ready', flush=True); fill_once(Path(sys.argv[1]), 'content', fill)\n"
)


def begin(place: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", PROGRAM, str(place)]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, start_new_session=True)
    assert process.stdout is not None and process.stdout.readline() == b"ready\n"
    return process


def test_two_runs_fill_a_directory_once(tmp_path: Path) -> None:
    place = tmp_path / "engine"
    first = begin(place)
    second = begin(place)

    assert [first.wait(60), second.wait(60)] == [0, 0]
    assert whole(place)
    marked = (place / MARKER).stat().st_mtime_ns
    assert fill_once(place, "content", fill) == place
    assert (place / MARKER).stat().st_mtime_ns == marked


@pytest.mark.parametrize("marker", ["", "of another engine"], ids=["unnamed", "other"])
def test_what_is_not_marked_with_its_content_is_filled_anew(marker: str, tmp_path: Path) -> None:
    """A marker without content was set by tests that filled the directory in place."""
    place = tmp_path / "engine"
    place.mkdir()
    (place / MARKER).write_text(marker)
    (place / "left-over").touch()

    fill_once(place, "content", fill)

    assert whole(place)
    assert not (place / "left-over").exists()

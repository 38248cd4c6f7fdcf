"""Wrong inputs beside the table of mistakes: a hint, a documented status, nothing left behind."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import disks
from tests.support.cases import cases
from tests.support.commandline import TINY, Packager
from tests.support.processes import run_python

OUT = ("--output", "oci:out")
BUILD = ("build", "--instance", "local", "--base", "scratch", *OUT)
BUILT_ON = ("build", "--instance", "local", "--model", str(TINY), "--base")


@cases("wrong")
def test_a_wrong_request_is_explained(
    packager: Packager, tmp_path: Path, model: str, more: list[str], status: int, says: str
) -> None:
    done = packager(*BUILD, "--model", model.format(tiny=TINY), *more, status=status)

    assert says in done.err
    assert "hint: " in done.err
    assert "Traceback" not in done.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("index", [None, "{", '{"manifests": [{}]}'])
def test_a_base_without_usable_index(packager: Packager, tmp_path: Path, index: str | None) -> None:
    base = tmp_path / "base"
    base.mkdir()
    (base / "oci-layout").write_text('{"imageLayoutVersion":"1.0.0"}')
    if index is not None:
        (base / "index.json").write_text(index)

    done = packager(*BUILT_ON, "oci:base", *OUT)

    assert done.status == (66 if index is None else 76), done.err
    assert "hint: " in done.err


def test_json_errors_are_documents(packager: Packager) -> None:
    done = packager("plan", "--model", "./nowhere", "--instance", "local", "--format", "json")

    document = json.loads(done.err)
    assert document["exit_code"] == done.status == 66
    assert document["hint"]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MB, half the size of the model."""
    with disks.small_disk(tmp_path / "small", "4m") as place:
        yield place


def test_a_full_disk_is_noticed_before_the_first_byte(packager: Packager, small_disk: Path) -> None:
    done = packager(
        *BUILD[:5], "--model", str(TINY), "--output", f"oci:{small_disk}/out", status=74
    )

    assert "are free" in done.err
    assert list(small_disk.iterdir()) == []


def test_a_disk_may_fill_up_meanwhile(packager: Packager, small_disk: Path, tmp_path: Path) -> None:
    code = (
        "import shutil, sys\n"
        "from collections import namedtuple\n"
        "usage = namedtuple('usage', 'total used free')\n"
        "shutil.disk_usage = lambda path: usage(10**12, 0, 10**12)\n"
        "from packager.cli.app import run\n"
        f"sys.exit(run(['build', '--model', {str(TINY)!r}, '--instance', 'local', '--base',\n"
        f" 'scratch', '--output', 'oci:{small_disk}/out', '--quiet']))\n"
    )

    assert "no space left" in run_python("-c", code, status=74).stderr
    assert list(small_disk.iterdir()) == []

"""What `scripts/library-names` tells: a library changed, or a worker uses more than is listed."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from tests.support.cases import cases, read_tables
from tests.support.places import SCRIPTS
from tests.support.workers import load

COMMON = SCRIPTS.parent / "containers/tools/common"
names = load(SCRIPTS / "library-names")


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tool whose list is right, and the library that it lists."""
    place = tmp_path / "mine"
    for name, text in read_tables(__file__)["files"].items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(text)
    shutil.copytree(COMMON, tmp_path / "common")
    monkeypatch.setattr(names, "TOOLS", tmp_path)
    assert run(monkeypatch, "--accept") == 0
    return place


def run(monkeypatch: pytest.MonkeyPatch, *options: str) -> int:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")  # a change of the same size in one second
    monkeypatch.setattr("sys.argv", ["names", "mine", "--python", sys.executable, *options])
    status: int = names.main()
    return status


@cases("told")
def test_what_is_other_than_listed_is_told(
    file: str,
    old: str,
    new: str,
    told: list[str],
    tool: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = (tool / file).read_text()
    assert old in text
    (tool / file).write_text(text.replace(old, new))

    status = run(monkeypatch)

    assert capsys.readouterr().out.splitlines() == [f"mine: {line}" for line in told]
    assert status == bool(told)


def test_what_was_read_is_accepted_with_its_version_and_what_is_gone_is_not(
    tool: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tool / "lib-1.0.dist-info/METADATA").write_text("Name: lib\nVersion: 2.0\n")
    part = tool / "lib/part.py"
    part.write_text(part.read_text().replace("return 1", "return 2").replace("LIMIT = 3", ""))

    assert run(monkeypatch, "--accept") == 1
    assert "lib.part:LIMIT is gone: read in 1.0, here is 2.0" in capsys.readouterr().out
    rows = (tool / "library.py").read_text().splitlines()
    (row,) = (row for row in rows if '"Base._step"' in row)
    assert row.split()[1] == '"2.0' and row.endswith('it is overridden",')
    (row,) = (row for row in rows if '"helper"' in row)
    assert row.split()[1] == '"1.0'  # its source is as it was

"""What decides that a worker is another one: its own modules, and those it shares with others."""

from __future__ import annotations

from pathlib import Path

import pytest

from packager.core.share import share_dir
from packager.optimize.steps.tools.definition import read_tool
from tests.support.cases import cases, read_tables

TOOLS = share_dir("containers") / "tools"


@pytest.fixture
def helper(tmp_path: Path) -> Path:
    place = tmp_path / "common"
    place.mkdir()
    for name in ("packager_worker", "shared"):
        (place / f"{name}.py").write_text("")
    return place


def tool(place: Path, source: str) -> Path:
    place.mkdir()
    (place / "tool.toml").write_text('summary = "does something"\n')
    (place / "worker.py").write_text("import steps\n")
    (place / "steps.py").write_text(source)
    return place


@cases("shared")
def test_a_shared_module_belongs_to_the_workers_that_import_it(
    source: str, changes: bool, helper: Path, tmp_path: Path
) -> None:
    place = tool(tmp_path / "tool", source)
    before = read_tool("tool", place, helper).worker_digest

    (helper / "shared.py").write_text("something = 1\n")

    assert (read_tool("tool", place, helper).worker_digest != before) == changes


def test_shared_modules_import_none_of_each_other() -> None:
    names = {path.stem for path in (TOOLS / "common").glob("*.py")}

    for path in (TOOLS / "common").glob("*.py"):
        lines = path.read_text().splitlines()
        imports = {line.split()[1] for line in lines if line.startswith(("import ", "from "))}
        assert not imports & names, path.name


def test_shipped_workers_are_those_that_made_what_caches_hold() -> None:
    places = sorted(file.parent for file in TOOLS.glob("*/tool.toml"))

    assert {
        place.name: read_tool(place.name, place, TOOLS / "common").worker_digest for place in places
    } == read_tables(__file__)["workers"]

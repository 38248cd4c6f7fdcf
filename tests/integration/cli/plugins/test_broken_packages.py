"""A package whose plug-ins are all broken: commands that name none of them work as without it."""

from __future__ import annotations

from pathlib import Path

import pytest

from packager.cli.plugins import tables
from packager.cli.plugins.rows import Table
from tests.support.cases import cases
from tests.support.commandline import TINY, Packager, packager_in

GROUPS = sorted(
    {table.group for table in vars(tables).values() if isinstance(table, Table) and table.group}
    | {"packager.tools"}
)


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    place = tmp_path / "site/broken-1.0.dist-info"
    place.mkdir(parents=True)
    (place / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n")
    points = [f"[{group}]\nbroken = nowhere:Broken\n" for group in GROUPS]
    (place / "entry_points.txt").write_text("\n".join(points))
    return {"PYTHONPATH": str(tmp_path / "site")}


@pytest.fixture
def run(tmp_path: Path) -> Packager:
    return packager_in(tmp_path)


@cases("commands")
@pytest.mark.extended
def test_commands_that_name_none_work(run: Packager, env: dict[str, str], words: str) -> None:
    model = ["--model", str(TINY)] if "--instance" in words else []

    done = run(*words.split(), *model, env=env, status=0)

    assert "nowhere" not in done.err


def test_its_tool_is_left_out_of_the_list(run: Packager, env: dict[str, str]) -> None:
    done = run("tools", "list", env=env, status=0)

    assert "broken" not in done.out
    assert "tool 'broken' from broken cannot be used" in done.err


def test_auto_goes_on_without_a_broken_compiler(run: Packager, env: dict[str, str]) -> None:
    words = ("--model", str(TINY), "--instance", "local", "--compile", "auto")

    done = run("plan", *words, env=env, status=0)

    assert done.err.count("compiler 'broken' from broken cannot be used") == 1
    assert "it is left out" in done.err


@cases("named")
def test_naming_it_says_whose_it_is(
    run: Packager, env: dict[str, str], words: tuple[str, str], kind: str
) -> None:
    done = run("plan", "--model", str(TINY), "--instance", "local", *words, env=env, status=2)

    assert f"error: {kind} 'broken' from broken cannot be used" in done.err
    assert "hint: update or uninstall that package" in done.err


@pytest.mark.parametrize(
    ("option", "kind"), [("--output", "output"), ("--base", "base"), ("--model", "source")]
)
def test_references_name_it(run: Packager, env: dict[str, str], option: str, kind: str) -> None:
    given = {"--model": str(TINY), "--base": "scratch", "--output": "oci:out"}
    given["--instance"] = "local"
    given[option] = "broken://x" if kind == "source" else "broken:x"

    done = run("build", *(word for pair in given.items() for word in pair), env=env, status=2)

    assert f"error: {kind} 'broken' from broken cannot be used" in done.err

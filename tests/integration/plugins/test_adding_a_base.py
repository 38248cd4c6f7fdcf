"""A source of base images of another package, as docs/adding-a-base.md has it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.commandline import TINY, packager_in
from tests.support.documented_packages import stated_count, write_package

PAGE = "adding-a-base.md"
BUILD = ("build", "--model", str(TINY), "--instance", "local")


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    write_package(PAGE, tmp_path / "site")
    (tmp_path / "bases.json").write_text(json.dumps({"small": "oci:base"}))
    return {"PYTHONPATH": str(tmp_path / "site"), "TEAM_BASES": str(tmp_path / "bases.json")}


def test_a_base_source_is_as_many_files_as_its_page_says(tmp_path: Path) -> None:
    assert len(write_package(PAGE, tmp_path / "site")) == stated_count(PAGE) == 2


def test_it_is_listed_with_its_package(tmp_path: Path, env: dict[str, str]) -> None:
    listed = packager_in(tmp_path)("list", "bases", "--format", "json", env=env)

    assert {"name": "team", "what": "from team-bases"} in json.loads(listed.out)


def test_an_image_is_built_upon_what_the_name_stands_for(
    tmp_path: Path, env: dict[str, str]
) -> None:
    run = packager_in(tmp_path)
    base = run(*BUILD, "--base", "scratch", "--output", "oci:base", env=env)

    done = run(*BUILD, "--base", "team:small", "--output", "oci:out", env=env)

    assert base.status == done.status == 0, done.err
    record = json.loads((tmp_path / "out.record.json").read_text())
    assert record["base"]["reference"] == "team:small"
    assert record["base"]["digest"] == base.out.strip().partition("@")[2]


def test_its_errors_are_its_own(tmp_path: Path, env: dict[str, str]) -> None:
    done = packager_in(tmp_path)(*BUILD, "--base", "team:large", "--output", "oci:out", env=env)

    assert done.status == 66
    assert "error: the team has no base 'large'" in done.err

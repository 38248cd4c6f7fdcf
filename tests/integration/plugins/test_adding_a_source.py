"""A source of another package, as docs/adding-a-source.md has it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.support.commandline import TINY, packager_in
from tests.support.documented_packages import stated_count, write_package

PAGE = "adding-a-source.md"


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    write_package(PAGE, tmp_path / "site")
    for revision in ("1", "2"):
        shutil.copytree(TINY, tmp_path / "shelf/tiny" / revision)
    return {"PYTHONPATH": str(tmp_path / "site"), "MODEL_SHELF": str(tmp_path / "shelf")}


def test_a_source_is_as_many_files_as_its_page_says(tmp_path: Path) -> None:
    assert len(write_package(PAGE, tmp_path / "site")) == stated_count(PAGE) == 2


def test_it_is_listed_with_its_package(tmp_path: Path, env: dict[str, str]) -> None:
    listed = packager_in(tmp_path)("list", "sources", "--format", "json", env=env)

    assert {"name": "shelf", "what": "from shelf-source"} in json.loads(listed.out)


def test_a_build_pins_the_revision(tmp_path: Path, env: dict[str, str]) -> None:
    run = packager_in(tmp_path)
    words = ("build", "--model", "shelf://tiny", "--instance", "local", "--base", "scratch")

    done = run(*words, "--output", "oci:out", "--record", "record.json", env=env)

    assert done.status == 0, done.err
    record = json.loads((tmp_path / "record.json").read_text())
    assert record["model"]["name"] == "tiny"
    assert (record["model"]["source"], record["model"]["revision"]) == ("other", "2")


def test_its_errors_are_its_own(tmp_path: Path, env: dict[str, str]) -> None:
    words = ("plan", "--model", "shelf://tiny@7", "--instance", "local")

    done = packager_in(tmp_path)(*words, env=env)

    assert done.status == 66
    assert "error: the shelf has no model 'tiny' with revision '7'" in done.err
    assert "hint: revisions that it has: 1, 2" in done.err

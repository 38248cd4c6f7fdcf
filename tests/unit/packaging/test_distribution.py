"""No hint and no page sends anybody to an index for a name of ours, which anybody may register."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

import pytest

from artifact_cache.distribution import DISTRIBUTION, install_command, installed_from
from tests.support.cases import read_tables
from tests.support.places import ROOT

TABLES = read_tables(__file__)

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
TOPS = TABLES["tops"]
# Ours by a bare name: from an index.  A path to a wheel or a checkout is not one.
BARE = re.compile(
    r"""(?:\b(?:pipx?|uv(?:\ tool|\ pip)?)\ install\b[^`'"\n]*\s|uvx\ )['"]?(?:model-)?packager\b
    |(?<![\w/.])(?:model-)?packager(?:\[[a-z]|[=~<>]=)""",
    re.VERBOSE,
)
ASKED = re.compile(r"pip install\s+'([a-z][^'{]*)'")


def texts() -> dict[str, str]:
    kept = [path for top in TOPS for path in (ROOT / top).rglob("*") if path.is_file()]
    kept += [path for path in ROOT.iterdir() if path.suffix == ".md" or path.name == "Makefile"]
    return {
        path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8", errors="replace")
        for path in kept
        if path.suffix != ".pyc"
    }


def test_nothing_asks_an_index_for_a_name_of_ours() -> None:
    assert PROJECT["name"] == DISTRIBUTION
    for bare in ("pip install packager", "pip install -U 'packager[s3]'", "packager==1"):
        assert BARE.search(bare), bare

    assert {name for name, text in texts().items() if BARE.search(text)} == set()


def test_pages_name_requirements_as_the_project_states_them() -> None:
    extras = PROJECT["optional-dependencies"]
    stated = {line for lines in (PROJECT["dependencies"], *extras.values()) for line in lines}
    pages = {name: text for name, text in texts().items() if name.endswith(".md")}

    asked = {(name, one) for name, text in pages.items() for one in ASKED.findall(text)}
    assert {one for one in asked if one[1] not in stated} == set()
    rows = re.findall(r"^\| `(\w+)` \| `pip install (.+?)`", pages["docs/install.md"], re.M)
    table = {name: re.findall("'(.+?)'", words) for name, words in rows}
    apart = {"test", "docs", "lint", "serve"}  # of developers, and an earlier name
    assert table == {x: extras[x] for x in extras if extras[x] and x not in apart}


def test_a_hint_names_the_requirement_of_the_installed_metadata(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert install_command("docker[ssh]", "ssh") == "pip install 'docker[ssh]>=7.1'"
    assert Path(installed_from()).is_absolute()  # these tests run from a checkout

    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert install_command("docker[ssh]", "ssh") == "pip install 'docker[ssh]'"
    assert installed_from() == ""
    place = tmp_path / "model_packager-1.dist-info"
    place.mkdir()
    (place / "METADATA").write_text("Metadata-Version: 2.1\nName: model-packager\nVersion: 1\n")
    for written, expected in TABLES[
        "a_hint_names_the_requirement_of_the_installed_metadata"
    ].items():
        (place / "direct_url.json").write_text(written)
        assert installed_from() == expected

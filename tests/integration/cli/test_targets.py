"""Targets of a project file, and the short spellings, build what their long forms build."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.support.cases import read_tables
from tests.support.commandline import TINY, Packager
from tests.support.written_layouts import WrittenLayout

TABLES = read_tables(__file__)

PROJECT = TABLES["project"]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    shutil.copytree(TINY, root / "models" / TINY.name)
    (root / ".git").mkdir()
    (root / "docs").mkdir()
    (root / "packager.toml").write_text(PROJECT)
    return root


def test_a_target_is_built_from_any_directory_of_its_repository(
    packager: Packager, project: Path
) -> None:
    done = packager("build", "@small", "-q", cwd=project / "docs", status=0)
    long = packager(
        *("build", "--model", str(TINY), "--instance", "local", "--base", "scratch", "-q"),
        *("--output", "oci:long"),
        cwd=project,
        status=0,
    )

    digest = WrittenLayout(project / "small").digest
    assert done.out == f"oci:{project}/small:latest@{digest}\n"
    assert long.out.endswith(f"{digest}\n")
    assert f"targets are those of {project}/packager.toml\n" in done.err


def test_options_win_over_a_target(packager: Packager, project: Path) -> None:
    done = packager("plan", "@small", "--served-name", "mine", "--json", cwd=project, status=0)

    assert json.loads(done.out)["served_name"] == "mine"


def test_all_targets_are_built_in_the_order_of_the_file(packager: Packager, project: Path) -> None:
    done = packager("build", "--all", "-q", cwd=project, status=0)
    documents = packager("build", "--all", "--json", cwd=project, status=0)

    digests = [WrittenLayout(project / name).digest for name in ("small", "named")]
    assert [line.partition("@")[2] for line in done.out.splitlines()] == digests
    assert [one["served_name"] for one in json.loads(documents.out)] == ["tiny-llama", "named"]


def test_a_wrong_target_names_those_that_there_are(packager: Packager, project: Path) -> None:
    done = packager("build", "@smal", cwd=project, status=2)

    assert "has no target 'smal'" in done.err
    assert "did you mean 'small'? packager.toml has small, named" in done.err


def test_a_target_and_a_request_file_are_not_mixed(packager: Packager, project: Path) -> None:
    (project / "request.toml").write_text('model = "m"\n')

    done = packager("build", "@small", "--request", "request.toml", cwd=project, status=2)

    assert "a target and a request file are given" in done.err
    assert packager("build", "--all", "--request", "request.toml", cwd=project).status == 2


def test_short_spellings_are_the_long_ones(packager: Packager, tmp_path: Path) -> None:
    build = ("build", str(TINY), "--instance", "local", "--base", "scratch", "-q", "-o", "oci:out")
    short = packager(*build, status=0)
    plan = ("plan", "--model", str(TINY), "--instance", "local")

    assert short.out == f"oci:{tmp_path}/out:latest@{WrittenLayout(tmp_path / 'out').digest}\n"
    assert (
        packager("plan", str(TINY), "--instance", "local", "--json", status=0).out
        == packager(*plan, "--format", "json", status=0).out
    )
    nowhere = {"DOCKER_HOST": f"unix://{tmp_path}/none.sock"}
    tagged = packager(*build[:-2], "-t", "tiny:1", env=nowhere, status=69)
    assert tagged.err == packager(*build[:-1], "docker:tiny:1", env=nowhere, status=69).err
    assert "no Docker Engine answers" in tagged.err

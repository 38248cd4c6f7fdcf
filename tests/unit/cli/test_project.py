"""Project files: where they are looked for, and what they may not decide."""

from __future__ import annotations

import os
from pathlib import Path

import jsonschema
import pytest

from packager.cli.project import find_project, project_schema, read_project, request_schema
from packager.core.errors import NotFound, UsageError
from tests.support.cases import cases

SMALL = '[defaults]\ninstance = "local"\n[targets.small]\nmodel = "m"\noutputs = ["oci:out"]\n'


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "repository" / "a" / "b").mkdir(parents=True)
    (tmp_path / "repository" / ".git").mkdir()
    return tmp_path / "repository"


def test_the_nearest_file_up_to_the_repositorys_root_counts(root: Path, tmp_path: Path) -> None:
    (tmp_path / "packager.toml").write_text(SMALL)  # above the repository
    with pytest.raises(NotFound, match=r"there is no packager\.toml"):
        find_project(root / "a" / "b", Path("/nowhere"))

    (root / "packager.toml").write_text(SMALL)
    assert find_project(root / "a" / "b", Path("/nowhere")) == root / "packager.toml"
    (root / "a" / "packager.toml").write_text(SMALL)
    assert find_project(root / "a" / "b", Path("/nowhere")) == root / "a" / "packager.toml"


def test_a_file_of_the_home_directory_does_not_count_below_it(root: Path) -> None:
    (root / "packager.toml").write_text(SMALL)

    with pytest.raises(NotFound):
        find_project(root / "a", root)
    assert find_project(root, root) == root / "packager.toml"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_what_another_user_owns_does_not_count(root: Path) -> None:
    (root / "packager.toml").write_text(SMALL)
    os.chown(root, 12345, 12345)
    with pytest.raises(NotFound):
        find_project(root / "a", Path("/nowhere"))

    os.chown(root / "packager.toml", 12345, 12345)
    with pytest.raises(UsageError, match="belongs to another user"):
        read_project(root / "packager.toml")


def test_paths_are_those_beside_the_file(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (root / "m").mkdir()
    (root / "packager.toml").write_text(
        SMALL + 'draft = "eagle3:m"\ncalibration = "default"\nquantize = "m"\n'
    )
    monkeypatch.chdir(root / "a")

    assert read_project(root / "packager.toml").fields_of("small") == {
        "instance": "local",
        "model": "../m",
        "outputs": (f"oci:{root}/out",),
        "draft": "eagle3:../m",
        "calibration": "default",
        "quantize": "m",
    }


@cases("what_a_target_may_not_say_is_refused")
def test_what_a_target_may_not_say_is_refused(root: Path, text: str, told: str) -> None:
    (root / "packager.toml").write_text(text)

    with pytest.raises(UsageError, match=told):
        read_project(root / "packager.toml")


def test_the_schemas_take_what_packager_takes() -> None:
    target = {"model": "m", "instance": "local", "quantize": "awq", "outputs": ["oci:o"]}
    for schema, good in (
        (request_schema(), target),
        (project_schema(), {"defaults": {"tp_degree": 2}, "targets": {"a": target}}),
    ):
        jsonschema.Draft202012Validator.check_schema(schema)
        jsonschema.validate(good, schema)
    for bad in (
        {"targets": {"a": {**target, "executor": "ray"}}},
        {"targets": {"a": {**target, "modell": "m"}}},
        {"targets": {"a": {**target, "tp_degree": "two"}}},
        {"targets": {}},
        {},
    ):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(bad, project_schema())

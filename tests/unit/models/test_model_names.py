"""The name that a model has where no hub gives it one."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from packager.core.model import ModelRef
from packager.core.request import BuildRequest
from packager.models.local import LocalSource
from packager.models.naming import name_of_directory, name_of_prefix, usable_name
from packager.models.reference import parse_model_reference
from packager.pipeline.planning.request_checks import SERVED_NAME
from tests.support.cases import cases
from tests.support.commandline import TINY


@cases("a_directory_names_its_model")
def test_a_directory_names_its_model(path: str, name: str) -> None:
    assert name_of_directory(Path(path)) == name


@cases("a_prefix_names_its_model")
def test_a_prefix_names_its_model(bucket: str, prefix: str, name: str) -> None:
    assert name_of_prefix(bucket, prefix) == name


@cases("what_a_name_cannot_have_is_replaced")
def test_what_a_name_cannot_have_is_replaced(text: str, name: str) -> None:
    assert usable_name(text) == name
    assert SERVED_NAME.fullmatch(name)
    assert BuildRequest(model="m", instance="local", served_name=name).served_name == name


def test_bytes_that_are_no_utf_8_are_left_out_of_a_name() -> None:
    assert usable_name("\udcff") == "model"


@pytest.mark.parametrize(
    "written",
    [".", "./", "../tiny-llama", "../tiny-llama/", "../tiny-llama/.", "../../examples/tiny-llama"]
    + [str(TINY), f"{TINY}/", f"{TINY}/../tiny-llama", f"/{TINY}"],
)
def test_the_same_directory_is_one_model(monkeypatch: pytest.MonkeyPatch, written: str) -> None:
    monkeypatch.chdir(TINY)

    found = LocalSource().facts(parse_model_reference(written))
    assert found == LocalSource().facts(parse_model_reference(str(TINY)))
    assert found.ref.name == "tiny-llama"


def test_the_directory_above_is_looked_up(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    shutil.copytree(TINY, tmp_path / "real")
    (tmp_path / "real" / "inside").mkdir()
    monkeypatch.chdir(tmp_path / "real" / "inside")

    assert LocalSource().facts(parse_model_reference("..")).ref.name == "real"


def test_a_link_is_the_model_that_it_leads_to(tmp_path: Path) -> None:
    snapshot = tmp_path / "models--acme--tiny" / "snapshots" / ("0e9e39f2" * 5)
    shutil.copytree(TINY, snapshot)
    (tmp_path / "production").symlink_to(snapshot)

    for written in ("production", f"models--acme--tiny/snapshots/{snapshot.name}/"):
        found = LocalSource().facts(parse_model_reference(str(tmp_path / written)))
        assert found.ref.name == "tiny"


@cases("only_what_was_published_is_looked_up_by_name")
def test_only_what_was_published_is_looked_up_by_name(ref: ModelRef, published: str) -> None:
    assert ref.published_name == published

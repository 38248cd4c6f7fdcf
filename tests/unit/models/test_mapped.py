"""Ids of models that stand for places of one's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from packager.core.errors import NotFound, UsageError
from packager.models.mapped import MappedModel, parse_mapped
from tests.support.cases import cases, read_tables

TABLES = read_tables(__file__)


FILE = TABLES["file"]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "tiny").mkdir()
    path = tmp_path / "jumpstart.toml"
    path.write_text(FILE)
    return path


def test_ids_come_from_the_command_line_a_file_and_the_users_own(file: Path) -> None:
    big = MappedModel(place="s3://models/big/", draft="s3://models/small/")
    of_file = {"meta-tiny": MappedModel(place=str(file.parent / "tiny")), "meta-big": big}

    assert parse_mapped([str(file)]) == of_file
    assert parse_mapped([], file) == of_file
    assert parse_mapped(["meta-big=s3://mine/"], file)["meta-big"].place == "s3://mine/"
    assert parse_mapped([], file.parent / "none.toml") == {}


@cases("what_maps_nothing_is_refused")
def test_what_maps_nothing_is_refused(texts: list[str], told: str) -> None:
    with pytest.raises((UsageError, NotFound), match=told):
        parse_mapped(texts)


@pytest.mark.parametrize("text", ["a = 1", "[a]\nplaces = 's3://b/'", "'A B' = 's3://b/'", "a ="])
def test_a_file_that_cannot_be_meant_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "m.toml").write_text(text)

    with pytest.raises(UsageError):
        parse_mapped([str(tmp_path / "m.toml")])

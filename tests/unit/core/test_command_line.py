"""Requests as command lines: what is pasted asks for the same again."""

from __future__ import annotations

import shlex
from typing import Any

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from packager.cli.options import make_request, request_options
from packager.core.command_line import command_text, flag_of, named_fields, request_words
from packager.core.request import BuildRequest
from tests.support.cases import cases, read_tables

# A value of each field that has an option of `packager plan`, unlike its default.
VALUES = read_tables(__file__)["values"]


def parsed(words: tuple[str, ...]) -> BuildRequest:
    """Parse options as `packager plan` does."""

    @click.command()
    @request_options
    def plan(**given: Any) -> BuildRequest:
        return make_request(given.pop("request_file"), **given)

    found = plan.main(list(words), standalone_mode=False)
    assert isinstance(found, BuildRequest)
    return found


def test_every_field_of_a_request_is_tried() -> None:
    assert {*VALUES, "model", "instance", "base", "outputs"} == {*BuildRequest.model_fields}


@pytest.mark.parametrize("name", VALUES)
def test_a_pasted_command_asks_for_the_same(name: str) -> None:
    asked = BuildRequest(model="m", instance="ml.g5.xlarge", **{name: VALUES[name]})

    assert parsed(request_words(asked)) == asked


def test_what_is_left_open_is_not_written() -> None:
    asked = BuildRequest(model="m", instance="local", weights="baked", outputs=("oci:x",))

    assert request_words(asked) == ("--model", "m", "--instance", "local", "--output", "oci:x")
    assert request_words(asked, leave_out=["outputs", "instance"]) == ("--model", "m")


@given(st.text(min_size=1).filter(lambda text: "\0" not in text))
def test_a_shell_reads_back_what_was_written(name: str) -> None:
    words = request_words(BuildRequest(model=name, instance="local"))

    assert tuple(shlex.split(command_text(words))) == words


def test_options_name_their_fields() -> None:
    given_options = [("--output", "oci:x"), ("--tp-degree", "2"), ("--engine-option", "a=b")]

    assert list(named_fields(given_options)) == [
        ("outputs", "oci:x"),
        ("tp_degree", "2"),
        ("engine_options", "a=b"),
    ]


@cases("flags_are_spelled_as_on_the_command_line")
def test_flags_are_spelled_as_on_the_command_line(name: str, flag: str) -> None:
    assert flag_of(name) == flag

"""What holds for the options of every command."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest

from packager.cli.app import app
from packager.cli.field_options import FiniteRange
from tests.support.known import known


def options_below(command: click.Command, context: click.Context) -> Iterator[tuple[str, str]]:
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            found = known(command.get_command(context, name))
            yield from options_below(found, click.Context(found, parent=context, info_name=name))
        return
    for one in command.params:
        if isinstance(one, click.Option):
            OPTIONS[context.command_path, one.opts[-1]] = (one, context)
            yield context.command_path, one.opts[-1]


OPTIONS: dict[tuple[str, str], tuple[click.Option, click.Context]] = {}


@pytest.fixture(scope="module", autouse=True)
def every_option() -> None:
    assert len(list(options_below(app, click.Context(app, info_name="packager")))) > 300


def test_every_option_has_a_help_text() -> None:
    assert [place for place, (one, _) in OPTIONS.items() if not one.help] == []


def test_every_required_option_is_asked_for() -> None:
    required = [found for found in OPTIONS.values() if found[0].required]
    assert len(required) > 15
    for one, context in required:
        with pytest.raises(click.MissingParameter):
            one.handle_parse_result(context, {}, [])


def test_no_option_is_described_by_the_name_of_a_type() -> None:
    told = {place: one.make_metavar(context) for place, (one, context) in OPTIONS.items()}

    assert [
        place
        for place, metavar in told.items()
        if metavar.endswith((" RANGE", "INTEGER", "FLOAT", "PATH", "FILENAME"))
    ] == []


def test_numbers_with_a_fraction_refuse_nan() -> None:
    numbers = [
        (place, one.type)
        for place, (one, _) in OPTIONS.items()
        if isinstance(one.type, click.FloatRange | click.types.FloatParamType)
    ]

    assert [place for place, kind in numbers if not isinstance(kind, FiniteRange)] == []
    assert numbers

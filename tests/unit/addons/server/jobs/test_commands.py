"""How a stage becomes a command line."""

from __future__ import annotations

from pathlib import Path

import click

from packager.addons.server.jobs.commands import SHOW_PROGRESS, WITHOUT_FORMAT, arguments_of
from packager.addons.server.jobs.values import Stage
from packager.cli.app import app
from tests.support.cases import cases
from tests.support.known import known

FOLDER = Path("/state/jobs/1")


@cases("commands")
def test_commands_print_for_programs_unless_they_say_how(
    words: list[str], arguments: list[str]
) -> None:
    assert arguments_of(Stage("x", tuple(words)), FOLDER) == arguments


def test_the_commands_that_show_progress_are_known() -> None:
    shows = {path for path, command in commands(app, ()) if "progress" in names_of(command)}

    assert shows == SHOW_PROGRESS


def test_the_commands_that_print_for_people_alone_are_known() -> None:
    bare = {path for path, one in commands(app, ()) if "output_format" not in names_of(one)}

    assert bare == WITHOUT_FORMAT


def names_of(command: click.Command) -> set[str | None]:
    return {one.name for one in command.params}


def commands(
    command: click.Command, path: tuple[str, ...]
) -> list[tuple[tuple[str, ...], click.Command]]:
    if not isinstance(command, click.Group):
        return [(path, command)]
    context = click.Context(command)
    found: list[tuple[tuple[str, ...], click.Command]] = []
    for name in command.list_commands(context):
        below = known(command.get_command(context, name))
        found += commands(below, (*path, name))
    return found

"""Groups of commands that are imported only when they are run."""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from packager.cli.addons import Rows, added_commands
from packager.cli.completion import VARIABLE

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


class LazyGroup(click.Group):
    """Loads a command's module only when the command is run.

    `sections` gives the commands under the headings of `--help`: for each name `module:function`
    and its summary, so that help imports no command.
    """

    sections: Mapping[str, Rows] = {}
    order: tuple[str, ...] = ()  # order of the names, add-ons' included
    takes_added: str | None = None  # the group that add-ons may add to; "" is `packager` itself

    def all_sections(self) -> Mapping[str, Rows]:
        """Return the rows under the headings of `--help`, with those of add-ons."""
        if self.takes_added is None:
            return self.sections
        added = added_commands(self.takes_added)
        place = {name: at for at, name in enumerate(self.order)}
        found = {}
        for heading in {**self.sections, **added}:
            rows = {**self.sections.get(heading, {}), **added.get(heading, {})}
            names = sorted(rows, key=lambda name: place.get(name, len(place)))
            found[heading] = {name: rows[name] for name in names}
        return found

    @property
    def table(self) -> Rows:
        """Return the rows of all commands, in the order in which a user meets them."""
        return {name: row for rows in self.all_sections().values() for name, row in rows.items()}

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """Return the names of all commands."""
        return list(self.table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import the command, or None for a wrong name."""
        own = {name: row for rows in self.sections.values() for name, row in rows.items()}
        row = own.get(cmd_name) or self.table.get(cmd_name)
        if row is None:
            return None
        module, _, function = row[0].partition(":")
        command: click.Command = getattr(importlib.import_module(module), function)
        _refuse_empty_paths(command)
        if VARIABLE in os.environ:
            from packager.cli.completion.values import complete_values

            complete_values(command)
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem[Any]]:
        """Return the names of commands, without importing them, and of options."""
        from click.shell_completion import CompletionItem

        return [
            *(CompletionItem(name, help=summary) for name, (_, summary) in self.table.items()),
            *click.Command.shell_complete(self, ctx, incomplete),
        ]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write commands before options."""
        self.format_commands(ctx, formatter)
        click.Command.format_options(self, ctx, formatter)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write the lists from the table, without importing anything; summaries are aligned."""
        width = max(map(len, self.table), default=0)
        for heading, rows in self.all_sections().items():
            with formatter.section(heading):
                formatter.write_dl(
                    [(name.ljust(width), summary) for name, (_, summary) in rows.items()]
                )


class _NamedPath(click.Path):
    """A path with a name: an empty text would be the working directory."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Convert as `Path` does; fail for an empty text."""
        if value == "":
            self.fail("an empty text is no path.", param, ctx)
        return super().convert(value, param, ctx)


def _refuse_empty_paths(command: click.Command) -> None:
    """Make every path of a command, and of those below it, one with a name."""
    for parameter in command.params:
        if type(parameter.type) is click.Path:
            parameter.type.__class__ = _NamedPath
    for below in getattr(command, "commands", {}).values():
        _refuse_empty_paths(below)

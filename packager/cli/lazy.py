"""Groups of commands that are imported only when they are run."""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from packager.cli.addons import Rows, added_commands
from packager.cli.command_help import HELP_ALL, help_all_option, prepare_command
from packager.cli.completion import VARIABLE

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


# Names of 0.2.0, taken for one more version.
EARLIER = {"list": "ls", "remove": "rm", "delete": "rm"}


class ShortNames(click.Group):
    """Lists and removes with `ls` and `rm`, as docker does; takes the earlier names too."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command of today's or an earlier name, or None."""
        return super().get_command(ctx, EARLIER.get(cmd_name, cmd_name))


class LazyGroup(click.Group):
    """Loads a command's module only when the command is run.

    `sections` gives the commands under the headings of `--help`: for each name `module:function`
    and its summary, so that help imports no command.
    """

    sections: Mapping[str, Rows] = {}
    order: tuple[str, ...] = ()  # order of the names, add-ons' included
    first: tuple[str, ...] = ()  # those that `--help` shows; (): all
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
        prepare_command(command)
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

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the group's own parameters, `--help-all` where `--help` leaves commands out."""
        found = super().get_params(ctx)
        return [*found[:-1], help_all_option("commands"), found[-1]] if self.first else found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the lists from the table, without importing anything; summaries are aligned."""
        width = max(map(len, self.table), default=0)
        shown = self.all_sections()
        if self.first and not ctx.meta.get(HELP_ALL):
            shown = {"Commands": {name: self.table[name] for name in self.first}}
        for heading, rows in shown.items():
            with formatter.section(heading):
                formatter.write_dl(
                    [(name.ljust(width), summary) for name, (_, summary) in rows.items()]
                )
        if left := len(self.table) - sum(map(len, shown.values())):
            with formatter.section(f"{left} more commands"):
                formatter.write_text(f"{ctx.command_path} {HELP_ALL}")

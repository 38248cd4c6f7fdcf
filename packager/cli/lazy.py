"""Groups of commands that are imported only when they are run."""

from __future__ import annotations

import importlib
from collections.abc import Mapping

import click


class LazyGroup(click.Group):
    """Loads a command's module only when the command is run.

    `table` gives for each name `module:function` and what `--help` says of it: the line
    is there so that help imports nothing.
    """

    table: Mapping[str, tuple[str, str]] = {}

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """All commands, in the order a user meets them."""
        return list(self.table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import the command, or None for a wrong name."""
        if cmd_name not in self.table:
            return None
        module, _, function = self.table[cmd_name][0].partition(":")
        command: click.Command = getattr(importlib.import_module(module), function)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write the list from the table, without importing anything."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in self.table.items()])

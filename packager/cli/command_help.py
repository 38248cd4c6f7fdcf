"""Help of one command: the options of every day first, all of them by `--help-all`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import click

from packager.cli.option_groups import FIRST, GROUPS, MOST_SHOWN
from packager.cli.terminal import print_text

HELP_ALL = "--help-all"
_LARGEST = 2**31 - 1  # of the numbers of a request
_JSON = "--json"  # the same as --format json; gh, docker and kubectl's users type it


def prepare_command(command: click.Command) -> None:
    """Add to a command, and to those below it, the help and spellings that all commands have."""
    if type(command) is click.Command:
        command.__class__ = HelpfulCommand
    for parameter in command.params:
        if type(parameter.type) is click.Path:
            parameter.type.__class__ = _NamedPath
        if "--output" in parameter.opts and not any("-o" in one.opts for one in command.params):
            parameter.opts.append("-o")
    for below in getattr(command, "commands", {}).values():
        prepare_command(below)


class HelpfulCommand(click.Command):
    """A command whose `--help` fits a screen, and that takes `--json` for `--format json`."""

    def make_parser(self, ctx: click.Context) -> Any:
        """Return click's parser, with `--json`."""
        parser = super().make_parser(ctx)
        given = next((one for one in _options(self) if "--format" in one.opts), None)
        has_own = any(_JSON in one.opts for one in self.params)
        if given is not None and not has_own and "json" in getattr(given.type, "choices", ()):
            parser.add_option(given, [_JSON], given.name, action="store_const", const="json")
        return parser

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the command's own parameters, `--help-all` where `--help` leaves some out."""
        found = super().get_params(ctx)
        if len(_options(self)) <= MOST_SHOWN:
            return found
        return [*found[:-1], help_all_option("options"), found[-1]]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write all options where they are few or asked for, else those of every day."""
        own = _options(self)
        by_flag = {flag: one for one in own for flag in one.opts}
        help_options = [
            one
            for one in self.get_params(ctx)
            if one not in self.params and isinstance(one, click.Option)
        ]
        if len(own) <= MOST_SHOWN:
            _write(ctx, formatter, "Options", [*own, *help_options])
            return
        if ctx.meta.get(HELP_ALL):
            for heading, options in _grouped(own, by_flag).items():
                _write(ctx, formatter, heading, options)
        else:
            shown = [one for one in own if one.required]
            shown += [by_flag[flag] for flag in FIRST if flag in by_flag]
            _write(ctx, formatter, "Options", list(dict.fromkeys(shown)))
            left = [one for one in own if one not in shown]
            heads = ", ".join(_grouped(left, by_flag)).lower()
            with formatter.section(f"{len(left)} more options"):
                formatter.write_text(f"{heads}: {ctx.command_path} {HELP_ALL}")
        _write(ctx, formatter, "Help", help_options)


class _NamedPath(click.Path):
    """A path with a name: an empty text would be the working directory."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Convert as `Path` does; fail for an empty text."""
        if value == "":
            self.fail("an empty text is no path.", param, ctx)
        return super().convert(value, param, ctx)


def help_all_option(what: str) -> click.Option:
    """Return the option that shows what `--help` leaves out, such as `options`."""
    return click.Option(
        [HELP_ALL],
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=_show_all,
        help=f"Show all {what} and exit.",
    )


def _show_all(ctx: click.Context, param: click.Parameter, value: bool) -> None:  # noqa: ARG001
    if value:
        ctx.meta[HELP_ALL] = True
        print_text(ctx.get_help())
        ctx.exit()


def _options(command: click.Command) -> list[click.Option]:
    return [one for one in command.params if isinstance(one, click.Option) and not one.hidden]


def _grouped(
    options: Iterable[click.Option], by_flag: Mapping[str, click.Option]
) -> dict[str, list[click.Option]]:
    """Return the options under their headings, in the order of the table."""
    left = list(options)
    found = {}
    for heading, flags in GROUPS.items():
        known = [by_flag[flag] for flag in flags if flag in by_flag]
        if here := [one for one in known if one in left]:
            found[heading] = list(dict.fromkeys(here))
            left = [one for one in left if one not in here]
    if left:
        found["Other options"] = left
    return found


def _write(
    ctx: click.Context, formatter: click.HelpFormatter, heading: str, options: list[click.Option]
) -> None:
    rows = [row for one in options if (row := one.get_help_record(ctx)) is not None]
    if rows:
        with formatter.section(heading):
            formatter.write_dl([(flags, _without_range(text)) for flags, text in rows])


def _without_range(text: str) -> str:
    """Remove the limits of a number that nobody meets: a least of 0 or 1, the largest of C's."""
    text = text.replace(f"<=x<={_LARGEST}]", "<=x]")
    return re.sub(
        r"  \[(?:[01]<=x|x>=?[01])\]|(?<=; )(?:[01]<=x|x>=?[01])(?=\])", "", text
    ).replace("; ]", "]")

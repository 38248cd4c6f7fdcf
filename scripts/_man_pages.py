"""Man pages of the commands: docs/man/packager.1, and one for each command with those below it."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import click
from _commands import commands, default_of, meaning, spelled, usage

from packager.cli.app import Commands, app
from packager.core.version import __version__

CHANGELOG = Path(__file__).resolve().parent.parent / "CHANGELOG.md"
_RELEASE = re.compile(rf"^## {re.escape(__version__)} - (\S+)$", re.MULTILINE)
_CODE = re.compile(r"`([^`]+)`")

Statuses = Callable[[], Iterable[tuple[str, str]]]


def page_name(path: str) -> str:
    """Return the file name of a command's page, such as `packager-build.1`."""
    return f"{path.replace(' ', '-')}.1"


def man_page(path: str, statuses: Statuses) -> str:
    """Return the page of a command as roff text."""
    context = click.Context(app)
    name = path.removeprefix("packager").strip()
    command = app.get_command(context, name) if name else app
    assert command is not None
    lines = [
        f'.TH {roff(path.replace(" ", "-").upper())} 1 {_date()} "packager {__version__}"',
        ".SH NAME",
        f"{path.replace(' ', '-')} \\- {roff(_summary(name, command))}",
        ".SH SYNOPSIS",
        *_usage(path, command),
        ".SH DESCRIPTION",
        *description(command),
    ]
    if command is app:
        lines += _sections()
    elif isinstance(command, click.Group):
        for below_path, below in list(commands(command, path))[1:]:
            if not isinstance(below, click.Group):
                lines += [f".SH {roff(below_path.upper())}", *_usage(below_path, below), ".PP"]
                lines += [*description(below), *_examples(below, ".PP"), *_options(below)]
    if options := list(_options(command)):
        lines += [".SH OPTIONS", *options]
    lines += _examples(command, ".SH EXAMPLES")
    lines += [".SH EXIT STATUS", *_statuses(statuses())] if command is app else []
    lines += [".SH SEE ALSO", *_see_also(command)]
    return "\n".join(lines) + "\n"


def description(command: click.Command) -> Iterator[str]:
    """Yield a command's help; blocks that show commands are left to the examples."""
    for number, paragraph in enumerate(_paragraphs(command, examples=False)):
        if number:
            yield ".PP"
        if paragraph.startswith("\b"):
            yield from _kept(paragraph)
        else:
            yield roff(" ".join(paragraph.split()))


def roff(text: str) -> str:
    """Escape text for roff; what is written as code becomes bold."""
    escaped = text.replace("\\", "\\e")
    for plain, safe in (
        ("-", "\\-"),
        ("~", "\\(ti"),
        ("^", "\\(ha"),
        ("'", "\\(aq"),
        ('"', "\\(dq"),
    ):
        escaped = escaped.replace(plain, safe)
    for sign in sorted({one for one in escaped if ord(one) > 126}):
        escaped = escaped.replace(sign, f"\\[u{ord(sign):04X}]")
    escaped = _CODE.sub(r"\\fB\1\\fR", escaped).replace("`", "\\(ga")
    return f"\\&{escaped}" if escaped.startswith(".") else escaped


def _date() -> str:
    """Return when the version was released, or was begun: no page changes by the day."""
    found = _RELEASE.search(CHANGELOG.read_text(encoding="utf-8"))
    return found[1] if found else '""'


def _summary(name: str, command: click.Command) -> str:
    rows = getattr(app, "table", {})
    summary = rows[name][1] if name in rows else command.get_short_help_str(200)
    return str(summary).removesuffix(".")


def _usage(path: str, command: click.Command) -> Iterator[str]:
    words = usage(path, command).removeprefix(path).strip()
    yield f".B {roff(path)}"
    if words:
        # A long list of choices may be broken, and has no spaces to stretch.
        yield from (".ad l", roff(words).replace("|", "|\\:"), ".ad b")


def _sections() -> Iterator[str]:
    """Yield the commands under the headings that help has."""
    yield ".SH COMMANDS"
    for heading, rows in Commands().all_sections().items():
        yield f".SS {roff(heading)}"
        for name, (_, summary) in rows.items():
            yield from (".TP", f".BR packager\\-{roff(name)} (1)", roff(summary))


def _options(command: click.Command) -> Iterator[str]:
    for one in command.params:
        if isinstance(one, click.Option) and not one.hidden:
            text = meaning(one)
            if default := default_of(one, command):
                text += f" Default: {default.strip('`')}."
            yield from (".TP", f".B {roff(spelled(one).strip('`'))}", roff(text))


def _examples(command: click.Command, heading: str) -> Iterator[str]:
    for number, paragraph in enumerate(_paragraphs(command, examples=True)):
        yield ".PP" if number else heading
        yield from _kept(paragraph)


def _paragraphs(command: click.Command, *, examples: bool) -> Iterator[str]:
    for paragraph in inspect.cleandoc(command.help or "").split("\n\n"):
        is_example = paragraph.startswith("\b\npackager ") or "\n    packager " in paragraph
        if is_example == examples and paragraph:
            yield paragraph


def _kept(paragraph: str) -> Iterator[str]:
    """Yield lines that stay as they are."""
    yield ".nf"
    for line in inspect.cleandoc(paragraph.removeprefix("\b\n")).splitlines():
        yield roff(line) if line else ".sp"
    yield ".fi"


def _statuses(rows: Iterable[tuple[str, str]]) -> Iterator[str]:
    for code, text in rows:
        yield from (".TP", f".B {code}", roff(text))


def _see_also(command: click.Command) -> Iterator[str]:
    if command is not app:
        yield ".BR packager (1)"
        return
    *names, last = app.list_commands(click.Context(app))
    for name in names:
        yield f".BR packager\\-{roff(name)} (1),"
    yield f".BR packager\\-{roff(last)} (1)"

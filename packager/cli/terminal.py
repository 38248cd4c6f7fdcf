"""The only place that writes to stdout and stderr: results, notes, warnings.

Everything is escaped on its way (`packager.core.text`), so that nothing that a model, registry,
server or tool wrote starts a line of its own, colours it or reorders it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TextIO

import click

from packager.cli.live import size_of
from packager.core.reports.report import Report
from packager.core.reports.text import fitted_lines, page_of, report_text
from packager.core.text import (
    escape,
    escape_json,
    escape_text,
    hide_userinfo,
    json_text,
    quoted_lines,
)

_area: Callable[[], AbstractContextManager[None]] = nullcontext


def print_line(line: str = "") -> None:
    """Write one line to stdout."""
    _write_lines([line], to_stderr=False)


def print_value(text: str) -> None:
    """Write a result to stdout as one line, however wide a terminal is: it is copied and piped."""
    _write(escape(text), to_stderr=False)


def print_lines(lines: Iterable[str]) -> None:
    """Write lines to stdout."""
    _write_lines(lines, to_stderr=False)


def print_text(text: str) -> None:
    """Write a text of several lines to stdout as it is: a page or a file."""
    if text:
        _write(escape_text(text.removesuffix("\n")), to_stderr=False)


def print_report(report: Report) -> None:
    """Write a report to stdout; a line that is longer than the terminal goes on indented."""
    with page_of(columns_of(sys.stdout)):
        if text := report_text(report):
            _write(text, to_stderr=False)


def print_result(output_format: str, document: Any, report: Report) -> None:
    """Write a result to stdout: its document as `json`, or its report as a page or as text."""
    if output_format == "json":
        print_json(document)
    elif output_format == "html":
        from packager.core.reports.page import report_html  # templates are loaded for a page alone

        print_text(report_html(report))
    else:
        print_report(report)


def columns_of(stream: TextIO) -> int | None:
    """Return how many cells a line of a terminal has; None of anything else."""
    try:
        is_terminal = stream.isatty()
    except ValueError:  # closed
        return None
    return size_of(stream, os.environ)[0] if is_terminal else None


def print_json(document: Any) -> None:
    """Write a document to stdout as JSON."""
    print_json_text(json_text(document))


def print_json_text(text: str) -> None:
    """Write JSON to stdout that is text already."""
    _write_json(text, to_stderr=False)


def note(line: str) -> None:
    """Write one line to stderr."""
    _write_lines([line], to_stderr=True)


def note_lines(lines: Iterable[str]) -> None:
    """Write lines to stderr."""
    _write_lines(lines, to_stderr=True)


def note_json(document: Any) -> None:
    """Write a document to stderr as JSON."""
    _write_json(json_text(document), to_stderr=True)


def note_log(log: str) -> None:
    """Write the output of a tool or a container to stderr, each line behind a `| `."""
    note_lines(quoted_lines(log))


def warn(text: str) -> None:
    """Write a warning to stderr; the command continues."""
    note(f"warning: {text}")


def escape_logs() -> None:
    """Escape what libraries log: clients of hubs and registries quote their servers."""
    import logging  # not for `--help`

    class Escaped(logging.LogRecord):
        def getMessage(self) -> str:
            return escape(super().getMessage())

    logging.setLogRecordFactory(Escaped)


def write_above(area: Callable[[], AbstractContextManager[None]] | None) -> None:
    """Write everything from now on within `area`, which clears the end of the terminal for it."""
    global _area
    _area = area or nullcontext


def _write_lines(lines: Iterable[str], *, to_stderr: bool) -> None:
    # The result on stdout may contain a full address; messages on stderr must not show passwords.
    shown = map(hide_userinfo, lines) if to_stderr else lines
    width = columns_of(sys.stderr if to_stderr else sys.stdout)
    if text := fitted_lines(map(escape, shown), width):
        _write("\n".join(text), to_stderr=to_stderr)


def _write(text: str, *, to_stderr: bool) -> None:
    """Write text; escape characters that the stream's encoding lacks."""
    encoding = _encoding(to_stderr=to_stderr)
    _echo(text.encode(encoding, "backslashreplace").decode(encoding), to_stderr=to_stderr)


def _write_json(text: str, *, to_stderr: bool) -> None:
    safe = escape_json(text)
    try:
        safe.encode(_encoding(to_stderr=to_stderr))
    except UnicodeEncodeError:
        safe = escape_json(text, ascii_only=True)
    _echo(safe, to_stderr=to_stderr)


def _echo(text: str, *, to_stderr: bool) -> None:
    with _area():
        click.echo(text, err=to_stderr)


def _encoding(*, to_stderr: bool) -> str:
    stream = sys.stderr if to_stderr else sys.stdout
    return getattr(stream, "encoding", None) or "utf-8"

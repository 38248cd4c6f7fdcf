"""Mending of a file: the edits that its findings carry, applied to its own bytes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from packager.addons.check.values import CheckReport, Edit

ROUNDS = 20  # what one edit joins to a command is looked at in the next


@dataclass(frozen=True, slots=True)
class Fixed:
    """A file's bytes after mending, how many edits were made, and what is found of them."""

    data: bytes
    edits: int
    report: CheckReport


def fix(file: str, data: bytes, check: Callable[[bytes], CheckReport]) -> Fixed:
    """Apply the safe edits of findings until none is left.

    An edit whose text is not at its place is left out.  Raises UnicodeDecodeError for a file that
    is not UTF-8.
    """
    report, count = check(data), 0
    for _ in range(ROUNDS):
        edits = {one.edit for one in report.remarks if one.edit is not None}
        text, made = _applied(
            data.decode("utf-8"), {one for one in edits if one.place.file == file}
        )
        if not made:
            break
        data, count = text.encode("utf-8"), count + made
        report = check(data)
    return Fixed(data, count, report)


def _applied(text: str, edits: set[Edit]) -> tuple[str, int]:
    """Return the text with the edits that stand where they say, and how many these are."""
    lines, made = text.split("\n"), 0
    for edit in sorted(edits, key=lambda one: (one.place.line, one.place.column), reverse=True):
        row, column = edit.place.line - 1, edit.place.column - 1
        if row == 0 and text.startswith("\ufeff"):
            column += 1
        line = lines[row] if row < len(lines) else ""
        before, rest = line[:column], line[column:]
        if rest.startswith(edit.old) and (edit.old or not rest.strip()):
            lines[row] = before + edit.new + rest[len(edit.old) :]
            made += 1
    return "\n".join(lines), made

"""Reports as lines of text, and the pieces that they are made of.

They are laid out for the width of a page: of a terminal, where one shows them.  Elsewhere the
page has no end, and a table has a line a row.  No number, reference, digest or path is ever broken,
and a command only so that it can be pasted.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Literal

from packager.core.findings import Finding
from packager.core.reports.cells import cell_width, padded, right_padded
from packager.core.reports.report import (
    Bar,
    Chart,
    Details,
    Findings,
    Lines,
    Pairs,
    Part,
    Report,
    Section,
    Table,
    Words,
    shown_in,
)
from packager.core.text import escape, joined

NARROWEST = 20  # no page is laid out for less
_UNLIMITED = 10_000
_INDENT = 4  # of what goes on in the next line
_LEAST_WORDS = 24  # cells of a column of words that is made narrower
_BAR, _BESIDE_BAR = 48, 13  # cells of a bar, and beside it
_CHART, _AXIS = 64, 16  # cells of a plot, and beside it

_page: ContextVar[int] = ContextVar("page", default=_UNLIMITED)

Alignment = Literal["left", "right"]


@contextmanager
def page_of(width: int | None) -> Iterator[None]:
    """Fit reports to lines of `width` cells; None: as wide as they are."""
    token = _page.set(_UNLIMITED if width is None else max(NARROWEST, width))
    try:
        yield
    finally:
        _page.reset(token)


def page_width() -> int:
    """Return the cells of a line."""
    return _page.get()


def report_text(report: Report) -> str:
    """Return a report as a text."""
    return joined(report_lines(report))


def report_lines(report: Report) -> list[str]:
    """Return the sections of a report, an empty line between them."""
    lines: list[str] = []
    for section in report.sections:
        found = section_lines(section)
        lines += ["", *found] if lines and found else found
    return lines


def section_lines(section: Section) -> list[str]:
    """Return the parts of a section below its heading; nothing where it has no lines."""
    if not shown_in("text", section):
        return []
    found = [line for part in section.parts for line in _part_lines(part)]
    return [escape(section.heading), *found] if section.heading and found else found


def _part_lines(part: Part) -> Iterable[str]:
    if not shown_in("text", part):
        return ()
    match part:
        case Pairs():
            return _pair_lines(part)
        case Words():
            text = escape(part.text)
            return wrapped(part.label, text) if part.label or part.is_soft else fitted_line(text)
        case Lines():
            lines = map(escape, part.lines)
            return lines if part.is_exact else fitted_lines(lines)
        case Table():
            return _part_of_table(part)
        case Bar():
            return _bar_lines(part)
        case Findings():
            return finding_lines(part.findings)
        case Details():
            return [line for one in part.parts for line in _part_lines(one)]
        case Chart():
            return _chart_lines(part)
        case _:
            return ()


def _pair_lines(part: Pairs) -> Iterator[str]:
    rows = [(escape(one.label), escape(one.text)) for one in part.rows if one.text]
    if part.is_listed:
        width = max((cell_width(label) for label, _ in rows), default=0)
        for label, text in rows:
            yield from fitted_line(f"  {padded(label, width)}  {text}")
        return
    for label, text in rows:
        yield from wrapped(label, text)


def _part_of_table(table: Table) -> Iterator[str]:
    places = [at for at, column in enumerate(table.columns) if shown_in("text", column)]
    units = {at: f" {table.columns[at].unit}" for at in places if table.columns[at].unit}
    rows = [
        [
            cell + units[at] if at in units and cell[:1].isdigit() else cell
            for at in places
            if (cell := row.cells[at]) is not None
        ]
        for row in table.rows
    ]
    if table.title:
        yield escape(table.title)
    header = [table.columns[at].name for at in places]
    yield from _table(header, rows, "right" if table.is_right else "left", table.indent)


def _bar_lines(part: Bar) -> Iterator[str]:
    yield from wrapped(part.label, escape(part.text))
    width = min(_BAR, page_width() - _BESIDE_BAR)
    drawn = "".join(
        one.letter * round(one.share * width) for one in part.shares if one.letter != "."
    )
    yield f"           [{drawn[:width].ljust(width, '.')}]"
    for one in part.shares:
        yield f"  {one.letter} {one.name:<12} {one.size:>10}  {one.share:>5.0%}"


def _chart_lines(part: Chart) -> Iterator[str]:
    from packager.core.reports.charts import text_chart  # few reports have one

    yield ""
    yield from fitted_line(escape(part.caption))
    width = min(_CHART, page_width() - _AXIS)
    yield from text_chart(part.series, x_label=part.x_label, y_label=part.y_label, width=width)


def by_severity(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Sort findings, the most severe first."""
    rank = {"error": 0, "warning": 1, "note": 2}
    return tuple(sorted(findings, key=lambda found: rank[found.severity]))


def finding_lines(findings: Iterable[Finding]) -> list[str]:
    """Return findings as lines, the most severe first, each with its hint."""
    lines = []
    for finding in by_severity(findings):
        lines.append(f"{finding.severity:<8} {escape(f'{finding.code}: {finding.message}')}")
        if finding.hint:
            lines.append(f"         hint: {escape(finding.hint)}")
    return fitted_lines(lines)


def table_lines(
    header: Sequence[str], rows: Sequence[Sequence[str]], *, indent: int = 0
) -> list[str]:
    """A plain table with aligned columns; numbers are for the caller to format."""
    return _table(header, rows, "left", indent)


def right_table_lines(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A table of numbers: aligned to the right, indented by two."""
    return _table(header, rows, "right", 2)


def wrapped(label: str, text: str, *, width: int = 96) -> list[str]:
    """A label and its text, further lines set under the text's beginning."""
    if page_width() < width:
        return fitted_line(f"{label:<10} {text}") if text else []
    return textwrap.wrap(
        text,
        width,
        initial_indent=f"{label:<10} ",
        subsequent_indent=" " * 11,
        break_long_words=False,
        break_on_hyphens=False,
    )


def fitted_line(line: str, width: int | None = None) -> list[str]:
    """Return a line as lines of the page's width, the further ones indented.

    It is broken between words only.  A command that is longer than a line is broken before its
    options, with a backslash, so that it can be copied.
    """
    width = page_width() if width is None else width
    if cell_width(line) <= width or line.startswith("| "):  # what a tool or a server wrote
        return [line]
    found = _LABELLED.fullmatch(line)
    if found is None:
        return [line]
    begun, text = found["label"], found["text"]
    hang = cell_width(begun) if 0 < 2 * cell_width(begun) <= width else 2
    pieces = _pieces(text, width - hang)
    lines: list[str] = []
    for piece, after in zip(pieces, [*pieces[1:], None], strict=True):
        end = 2 if after is not None and after.is_option else 0  # cells of the backslash
        room = width - cell_width(begun) - end
        is_first = begun == found["label"]
        needed = cell_width(piece.text if is_first else piece.spaced)
        # After a label alone only what fits into a line of its own.
        if begun.strip() and needed > room and (not is_first or needed < width):
            lines.append(begun.rstrip() + (" \\" if piece.is_option else ""))
            # What is longer than the rest of a line may begin further left.
            begun = " " * max(min(hang, width - end - cell_width(piece.text)), 1) + piece.text
        else:
            begun += piece.text if is_first else piece.spaced
    return [*lines, begun]


def fitted_lines(lines: Iterable[str], width: int | None = None) -> list[str]:
    """Return lines, broken where they are longer than the page is wide, or than `width`."""
    return [part for line in lines for part in fitted_line(line, width)]


@dataclass(frozen=True, slots=True)
class _Piece:
    """What is never broken: a word, a number with its unit, an option with its value."""

    text: str
    space: str = " "  # before it
    is_option: bool = False  # of a command: ends a line that continues

    @property
    def spaced(self) -> str:
        return self.space + self.text


_LABELLED = re.compile(
    r"(?P<label>\s*(?:(?:error|warning|hint|note): |\S.{0,14}?\s{2,})?)(?P<text>\S.*)"
)
_QUOTED = r"`[^`]+`[^\s`]*|'[^'\s/][^']*/[^']*'[^\s']*|'/[^']+'[^\s']*"  # a command, or a path
_WORD = re.compile(rf"(\s*)({_QUOTED}|\S+)")
_ARGUMENT = re.compile(r"""(\s*)((?:'[^']*'|"[^"]*"|\\.|[^\s'"\\])+|\S+)""")
_COMMAND = re.compile(
    r"(?:\w+=\S+ )*(?:sudo )?(?:packager|docker|curl|pip|uv|hf|ray|kubectl) (?=\D).* --?\w.*"
)
_NUMBER = re.compile(r"[(±$~<+]*\d[\d.,:]*")
_UNIT = re.compile(r"(?:%|[kMGT]?i?B(?:/s)?|[mµn]?s|min|h|d|x|requests|tokens)[.,;:)]*")


def _pieces(text: str, width: int) -> list[_Piece]:
    if _COMMAND.fullmatch(text):
        return list(_arguments(text))
    pieces: list[_Piece] = []
    for space, word in _WORD.findall(text):
        last = pieces[-1].text if pieces else ""
        is_quoted = word.startswith("`")
        if is_quoted and cell_width(word) > width and _COMMAND.match(word[1:]):
            first, *others = _arguments(word)
            pieces += [_Piece(first.text, space), *others]
        elif space == " " and _belongs(last, word):
            pieces[-1] = _Piece(f"{last} {word}", pieces[-1].space)
        else:
            pieces.append(_Piece(word, space))
    return pieces


def _belongs(last: str, word: str) -> bool:
    """Return whether a word stays with the last one: a unit, a factor, the value of an option.

    So does the backslash of a command that was broken before.
    """
    if word == "\\" and last:
        return True
    before = last.rpartition(" ")[2]
    if _NUMBER.fullmatch(before):
        return _UNIT.fullmatch(word) is not None
    if before == "x":
        return last[:1].isdigit()
    return before.startswith("--") and "=" not in before and word[:1].isalnum()


def _arguments(command: str) -> Iterator[_Piece]:
    """Yield the name of a command, and each of its options with what follows it."""
    begun = ""
    is_option = False
    for space, argument in _ARGUMENT.findall(command):
        if argument.startswith("-") and begun:
            yield _Piece(begun, is_option=is_option)
            begun, is_option = argument, True
        else:
            begun += (space if begun else "") + argument
    yield _Piece(begun, is_option=is_option)


def _table(
    header: Sequence[str], rows: Sequence[Sequence[str]], alignment: Alignment, indent: int
) -> list[str]:
    """Align columns; those for which a line has no room go on, aligned too, in the next line."""
    cells = [[escape(cell) for cell in row] for row in (header, *rows)]
    columns = list(zip(*cells, strict=True))
    groups = _groups(columns, page_width() - indent)
    lines = []
    for number, row in enumerate(cells):
        for at, group in enumerate(groups):
            if at and number and not any(row[column] for column, _ in group):
                continue
            margin = " " * (indent + (_INDENT if at else 0))
            lines += [
                f"{margin}{line}".rstrip()
                for line in _row([row[column] for column, _ in group], group, alignment)
            ]
    return lines


def _groups(columns: Sequence[Sequence[str]], width: int) -> list[list[tuple[int, int]]]:
    """Return the columns of each line, with their widths."""
    groups: list[list[tuple[int, int]]] = [[]]
    room = width
    for number, column in enumerate(columns):
        widest = max(map(cell_width, column))
        has_words = widest > _LEAST_WORDS and any(" " in cell for cell in column)
        left = room - (2 if groups[-1] else 0)
        if widest > left and not (has_words and left >= _LEAST_WORDS):
            groups.append([])
            left = room = width - _INDENT
        given = min(widest, left) if has_words else widest
        groups[-1].append((number, given))
        room = left - given
    return [group for group in groups if group]


def _row(
    row: Sequence[str], group: Sequence[tuple[int, int]], alignment: Alignment
) -> Iterator[str]:
    align = padded if alignment == "left" else right_padded
    cells = [fitted_line(cell, width) for cell, (_, width) in zip(row, group, strict=True)]
    for number in range(max(map(len, cells))):
        yield "  ".join(
            align(cell[number] if number < len(cell) else "", width)
            for cell, (_, width) in zip(cells, group, strict=True)
        )

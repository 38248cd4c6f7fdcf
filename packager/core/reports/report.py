"""A report as a value: what it says, and in which order; its writers decide how it looks.

`text.report_lines` writes it for terminals of any width, `page.report_html` as one page of HTML.
Texts are as their sources have them: the writers escape.  What has a `medium` is shown by one of
the two only.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from packager.core.findings import Finding

Medium = Literal["", "text", "page"]  # "": both
Tone = Literal["", "yes", "note", "warning", "error"]


@dataclass(frozen=True, slots=True)
class Pair:
    """A label with its text."""

    label: str
    text: str
    tone: Tone = ""


@dataclass(frozen=True, slots=True)
class Pairs:
    """Labels with their texts, one below the other; pairs without a text are left out."""

    rows: tuple[Pair, ...]
    medium: Medium = ""
    is_listed: bool = False  # in text: indented, and aligned behind the longest label


@dataclass(frozen=True, slots=True)
class Words:
    """A sentence without its capital and its full stop; code stands between backticks."""

    text: str
    medium: Medium = ""
    is_soft: bool = True  # beside the figures, in text indented; else a result
    label: str = ""  # in text


@dataclass(frozen=True, slots=True)
class Lines:
    """Lines as they are: what a tool wrote, a file, a tree drawn with letters."""

    lines: tuple[str, ...]
    medium: Medium = "text"
    is_exact: bool = False  # in text as long as they are: a file


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table; its cells are written with as many digits as they are good for."""

    name: str
    is_number: bool = False
    unit: str = ""  # behind each number in text, behind the name on a page
    medium: Medium = ""
    field: str = ""  # of the page's filters, that chooses among its cells


@dataclass(frozen=True, slots=True)
class Row:
    """Cells of a table; on a page the last one spans the columns that have none."""

    cells: tuple[str, ...]
    series: int | None = None  # whose sign in charts stands before the first cell
    tone: str = ""
    href: str = ""  # where the first cell leads to


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows of cells."""

    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    title: str = ""  # in text above it, on a page what a screen reader calls it
    caption: str = ""  # on a page
    is_right: bool = False  # in text: all columns aligned to the right, as figures are
    indent: int = 0  # in text
    is_sorted: bool = False  # on a page: a reader can sort it
    medium: Medium = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dot:
    """One point, in data values; an interval is (low, high)."""

    x: float
    y: float
    title: str  # shown when the pointer rests on it
    label: str = ""  # beside it; "" for none
    x_range: tuple[float, float] | None = None
    y_range: tuple[float, float] | None = None
    ringed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """Points that are joined in their order."""

    number: int  # which decides its colour and shape
    name: str
    dots: tuple[Dot, ...]
    joined: bool = True
    is_faint: bool = False  # behind the others, without labels


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """What a series is called."""

    number: int
    name: str
    short: str  # in drawings: the name, or a letter
    is_letter: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """Series of points; `name` and `table` tell who cannot see it what it shows, and where."""

    series: tuple[Series, ...]
    x_label: str
    y_label: str
    name: str
    table: str  # that has the same figures
    x_steps: tuple[float, ...] = ()  # values of the horizontal axis that get a line of the grid
    linear_x: bool = False
    linear_y: bool = False
    height: int = 400
    keys: tuple[Key, ...] = ()  # of its legend
    beside: tuple[Part, ...] = ()  # on a page
    caption: str = ""  # in text
    medium: Medium = "page"


@dataclass(frozen=True, slots=True)
class Share:
    """A part of a bar."""

    name: str
    letter: str  # in text; `.` of what is left
    size: str
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """Shares of a whole, drawn to scale and listed."""

    label: str
    text: str
    shares: tuple[Share, ...]
    medium: Medium = ""


@dataclass(frozen=True, slots=True)
class Findings:
    """Findings, the most severe first."""

    findings: tuple[Finding, ...]
    medium: Medium = ""


@dataclass(frozen=True, slots=True)
class Command:
    """A command to copy, and what it does: `makes this page`."""

    text: str
    does: str
    medium: Medium = "page"


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """One of several choices side by side."""

    title: str
    what: str = ""
    price: str = ""
    price_unit: str = ""
    facts: tuple[Pair, ...] = ()
    command: Command | None = None
    note: str = ""  # in place of the command
    series: int | None = None
    is_first: bool = False


@dataclass(frozen=True, slots=True)
class Cards:
    """Choices side by side."""

    cards: tuple[Card, ...]
    medium: Medium = "page"


@dataclass(frozen=True, slots=True)
class Details:
    """Parts that a page shows when they are asked for, and text as all others."""

    summary: str
    parts: tuple[Part, ...]
    medium: Medium = ""


@dataclass(frozen=True, slots=True)
class Drawing:
    """A drawing as SVG that we wrote, with everything in it escaped."""

    svg: str
    medium: Medium = "page"


Part = Pairs | Words | Lines | Table | Chart | Bar | Findings | Command | Cards | Details | Drawing


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """Parts below a heading; on a page it can be linked to."""

    parts: tuple[Part, ...]
    key: str = ""  # on a page
    title: str = ""  # on a page
    heading: str = ""  # in text, where it has one
    short: str = ""  # in the list of contents of a page; "": it is not listed
    medium: Medium = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """All that a command shows; text has the sections only."""

    title: str
    sections: tuple[Section, ...]
    kind: str = ""  # above the title
    origin: tuple[str, ...] = ()  # below it: of what, when, by which version
    badge: tuple[str, Tone] = ("", "")
    verdict: str = ""
    tiles: tuple[Pair, ...] = ()  # figures, with what they are
    doubts: tuple[str, ...] = ()
    keys: tuple[Key, ...] = ()  # of series that rows and charts have the signs of
    footer: str = ""
    packager: str = ""  # the version that made it
    is_wide: bool = False


def one_section(title: str, *parts: Part) -> Report:
    """Return a report of one section."""
    return Report(title=title, sections=(Section(key="all", title=title, parts=parts),))


def plain_table(
    names: Iterable[str], rows: Iterable[Sequence[str]], numbers: frozenset[str] = frozenset()
) -> Table:
    """Return a table of cells; the columns in `numbers` hold numbers."""
    columns = tuple(Column(name, is_number=name in numbers) for name in names)
    return Table(columns=columns, rows=tuple(Row(tuple(row)) for row in rows), is_sorted=True)


def word_columns(*names: str) -> tuple[Column, ...]:
    """Return columns of words."""
    return tuple(map(Column, names))


def number_columns(*names: str) -> tuple[Column, ...]:
    """Return columns of numbers."""
    return tuple(Column(name, is_number=True) for name in names)


def shown_in(medium: Medium, part: Part | Section | Column) -> bool:
    """Return whether a writer shows a part."""
    return part.medium in ("", medium)

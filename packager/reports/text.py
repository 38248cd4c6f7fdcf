"""Pieces of text that several reports use."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence

from packager.core.findings import Finding
from packager.core.text import escape


def finding_lines(findings: Iterable[Finding]) -> list[str]:
    """Findings, the worst first, each with its way out."""
    rank = {"error": 0, "warning": 1, "note": 2}
    lines = []
    for finding in sorted(findings, key=lambda found: rank[found.severity]):
        lines.append(f"{finding.severity:<8} {escape(f'{finding.code}: {finding.message}')}")
        if finding.hint:
            lines.append(f"         hint: {escape(finding.hint)}")
    return lines


def table_lines(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A plain table with aligned columns; numbers are for the caller to format."""
    rows = [[escape(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in (header, *rows)
    ]


def right_table_lines(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A table of numbers: aligned to the right, indented by two."""
    rows = [[escape(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    return [
        "  " + "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        for row in (header, *rows)
    ]


def wrapped(label: str, text: str, *, width: int = 96) -> list[str]:
    """A label and its text, further lines set under the text's beginning."""
    return textwrap.wrap(
        text,
        width,
        initial_indent=f"{label:<11}",
        subsequent_indent=" " * 11,
        break_long_words=False,
        break_on_hyphens=False,
    )

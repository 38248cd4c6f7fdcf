"""Pieces of text that several reports use."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

from packager.core.findings import Finding


def json_text(document: Any) -> str:
    """A document for programs: indented, in the order it was made."""
    return json.dumps(document, indent=2, ensure_ascii=False)


def finding_lines(findings: Iterable[Finding]) -> list[str]:
    """Findings, the worst first, each with its way out."""
    rank = {"error": 0, "warning": 1, "note": 2}
    lines = []
    for finding in sorted(findings, key=lambda found: rank[found.severity]):
        lines.append(f"{finding.severity:<8} {finding.code}: {finding.message}")
        if finding.hint:
            lines.append(f"         hint: {finding.hint}")
    return lines


def table_lines(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A plain table with aligned columns; numbers are for the caller to format."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in (header, *rows)
    ]


def plain(text: str) -> str:
    """Replace what a terminal would obey or hide: names come from strangers' files."""
    return "".join(letter if letter.isprintable() or letter == "\n" else "�" for letter in text)


def right_table_lines(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A table of numbers: aligned to the right, indented by two."""
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

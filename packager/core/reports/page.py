"""Reports as one page of HTML: self-contained, readable without script, to be kept and printed.

Names of models and messages are untrusted: the environment escapes everything, not each template.
A content security policy in the page forbids all requests, and allows only its own style and
script, by their digests.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from packager.core.reports.curves import COLOURS, make_curves, shape_of
from packager.core.reports.report import Cards, Column, Drawing, Part, Report, Section, Table
from packager.core.share import share_dir
from packager.core.text import escape

_FIRST_WORD = re.compile("[a-z]+[ ,;]")  # of a sentence; names have other letters, or a colon
_COMMENTS = re.compile(r"/\*.*?\*/", re.DOTALL)


def report_html(report: Report) -> str:
    """Print a report; every value is escaped, and one that is missing is an error."""
    style, script = _style(), _script()
    policy = "; ".join(
        (
            "default-src 'none'",
            f"style-src {_source(style)}",
            f"script-src {_source(script)}",
            "base-uri 'none'",
            "form-action 'none'",
        )
    )
    ours = {"policy": policy, "style": Markup(style), "script": Markup(script)}
    return page_templates().get_template("report.html.j2").render(report=report, **ours)


def fragment_html(report: Report) -> str:
    """Return a report as a part of somebody's page, such as a notebook: no style, no script."""
    return page_templates().get_template("fragment.html.j2").render(report=report)


@cache
def page_templates(*folders: str) -> Environment:
    """Return templates of pages that escape every value: those of `folders`, then the reports'."""
    places = [share_dir("templates") / folder for folder in (*folders, "report")]
    made = Environment(
        loader=FileSystemLoader(places, encoding="utf-8"),
        undefined=StrictUndefined,
        finalize=_escaped,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals["colours"] = COLOURS
    made.filters |= {
        "kind": lambda part: type(part).__name__,
        "on_page": _is_on_page,
        "shown_columns": _shown_columns,
        "card_rows": _card_rows,
        "sentence": sentence,
        "drawn": make_curves,
        "shape": shape_of,
        "markup": _markup,
    }
    return made


def sentence(words: str) -> str:
    """Return words with a capital, unless they begin with a name, and a full stop."""
    end = "" if words.endswith((".", ":", "!", "?")) else "."
    first = words[:1].upper() if _FIRST_WORD.match(words) else words[:1]
    return f"{first}{words[1:]}{end}"


def compact_style(*files: Path) -> str:
    """Return style sheets as one, without comments and indentation."""
    return _compact(_COMMENTS.sub("", _joined(files)))


def compact_script(*files: Path) -> str:
    """Return scripts as one, without comments of whole lines and indentation."""
    lines = _joined(files).splitlines()
    return _compact("\n".join(line for line in lines if not line.lstrip().startswith("//")))


def _is_on_page(part: Part | Section | Column) -> bool:
    return part.medium in ("", "page")


def _shown_columns(table: Table) -> list[tuple[int, Column]]:
    """Return the columns that a page has, with their places in the rows."""
    return [(at, column) for at, column in enumerate(table.columns) if _is_on_page(column)]


def _card_rows(part: Cards) -> int:
    """Count the lines of the grid that the cards share, so that like stands beside like."""
    return max(
        1 + sum(map(bool, (one.what, one.price, one.facts, one.command or one.note)))
        for one in part.cards
    )


def _markup(drawing: Drawing) -> Markup:
    return Markup(drawing.svg)  # escaped where it is made


def _source(text: str) -> str:
    """Return the policy's source expression of an inlined text: its digest."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


@cache
def _style() -> str:
    return compact_style(share_dir("templates") / "report" / "page.css")


@cache
def _script() -> str:
    return compact_script(share_dir("templates") / "report" / "page.js")


def _joined(files: Iterable[Path]) -> str:
    return "\n".join(file.read_text(encoding="utf-8") for file in files)


def _compact(text: str) -> str:
    """Remove indentation and empty lines, a sixth of it."""
    return "\n".join(filter(None, map(str.strip, text.splitlines())))


def _escaped(value: object) -> object:
    """Escape what would start a line of the page or reorder it; jinja escapes the markup."""
    return escape(value) if type(value) is str else value

"""One page of HTML: self-contained, readable without script, ready to be kept and printed.

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
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from packager.core.share import share_dir
from packager.core.text import escape

_COMMENTS = re.compile(r"/\*.*?\*/", re.DOTALL)


def render_page(template: str, page: dict[str, Any], *, own: str = "") -> str:
    """Print a page; every value is escaped, and one that is missing is an error.

    `own` names the style and the script of its kind of page, behind those of all.
    """
    style, script = _style(own), _script(own)
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
    return page_templates().get_template(template).render(page | ours)


@cache
def page_templates(*folders: str) -> Environment:
    """Return templates of pages that escape every value: those of `folders`, then the reports'."""
    places = [share_dir("templates") / folder for folder in (*folders, "report")]
    return Environment(
        loader=FileSystemLoader(places, encoding="utf-8"),
        undefined=StrictUndefined,
        finalize=_escaped,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def compact_style(*files: Path) -> str:
    """Return style sheets as one, without comments and indentation."""
    return _compact(_COMMENTS.sub("", _joined(files)))


def compact_script(*files: Path) -> str:
    """Return scripts as one, without comments of whole lines and indentation."""
    lines = _joined(files).splitlines()
    return _compact("\n".join(line for line in lines if not line.lstrip().startswith("//")))


def _source(text: str) -> str:
    """Return the policy's source expression of an inlined text: its digest."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


@cache
def _style(own: str) -> str:
    return compact_style(*_both(own, "css"))


@cache
def _script(own: str) -> str:
    return compact_script(*_both(own, "js"))


def _both(own: str, ending: str) -> list[Path]:
    place = share_dir("templates") / "report"
    return [place / f"{name}.{ending}" for name in ("page", own) if name]


def _joined(files: Iterable[Path]) -> str:
    return "\n".join(file.read_text(encoding="utf-8") for file in files)


def _compact(text: str) -> str:
    """Remove indentation and empty lines, a sixth of it."""
    return "\n".join(filter(None, map(str.strip, text.splitlines())))


def _escaped(value: object) -> object:
    """Escape what would start a line of the page or reorder it; jinja escapes the markup."""
    return escape(value) if type(value) is str else value

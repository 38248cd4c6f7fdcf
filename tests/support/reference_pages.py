"""Pages of docs/reference, made from the code as the site makes them: git holds none of them."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import urllib3  # noqa: F401 - opens a socket when it is imported, as commands do

from tests.support.places import SCRIPTS
from tests.support.workers import load

script = load(SCRIPTS / "make-reference")
REFERENCE: tuple[Path, ...] = tuple(script.REFERENCE)


@cache
def read_page(path: Path) -> str:
    """Return the text of a page: of the reference as it would be made, of others as it is."""
    if path in script.REFERENCE:
        return str(script.REFERENCE[path]())
    return path.read_text(encoding="utf-8")


def is_page(path: Path) -> bool:
    return path in script.REFERENCE or path.exists()


def written_pages(docs: Path) -> list[Path]:
    """Return the pages that git holds: not those that a run of the script left in docs/."""
    return sorted(path for path in docs.rglob("*.md") if path not in script.REFERENCE)

"""Docstrings and pages use the words that a reader searches for."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.places import ROOT

# First words of a docstring that say neither what comes back nor what is done.
VAGUE = frozenset(
    ("Give", "Gives", "Say", "Says", "Tell", "Tells", "Have", "Know", "Let", "Stand", "Hand")
    + ("Bring", "Settle", "Be", "Spell", "Reckon", "Name", "Take", "Put", "Lay", "Doers")
)
RIDDLES = re.compile(r"\b(doers?|reckon(s|ed)?|without a word)\b", re.IGNORECASE)
# Files of other projects that the pages cite.
CITED = ("compilation/", "engine/", "model_executor/", "srt/", "python/", "backends/")


def docstrings(path: Path) -> Iterator[tuple[str, str]]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text:
                yield getattr(node, "name", "module"), text


@pytest.mark.parametrize("package", ["packager", "artifact_cache"])
def test_a_docstring_begins_with_what_is_returned_or_done(package: str) -> None:
    vague = [
        f"{path.relative_to(ROOT)}: {name}: {text.splitlines()[0]}"
        for path in sorted((ROOT / package).rglob("*.py"))
        for name, text in docstrings(path)
        if text.split()[0].rstrip(".,:") in VAGUE or RIDDLES.search(text)
    ]

    assert vague == []


def test_every_page_is_in_the_index() -> None:
    index = (ROOT / "docs/README.md").read_text(encoding="utf-8")
    pages = {path.name for path in (ROOT / "docs").glob("*.md")} - {"README.md"}

    assert {page for page in pages if f"({page})" not in index} == set()


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("*.md")), ids=lambda page: page.name)
def test_files_that_a_page_names_are_there(page: Path) -> None:
    named = re.findall(r"`([a-z_]+(?:/[a-z_]+)+\.py)`", page.read_text(encoding="utf-8"))
    places = (ROOT, ROOT / "packager", ROOT / "artifact_cache")

    missing = [
        name
        for name in named
        if not name.startswith(CITED) and not any((place / name).is_file() for place in places)
    ]

    assert missing == []

"""`docs/where.md`: the word that a reader searches finds the file that answers."""

from __future__ import annotations

import re

import pytest

from tests.support.places import ROOT

ROWS = re.findall(
    r"^\| (.+?) \| (.+?)(?: \*)? \| `(.+)` \|$",
    (ROOT / "docs/where.md").read_text("utf-8"),
    re.MULTILINE,
)


@pytest.fixture(scope="module")
def texts() -> dict[str, bytes]:
    """Return the files of the package in the order of `git grep`, in small letters."""
    files = (one for one in (ROOT / "packager").rglob("*") if "__pycache__" not in one.parts)
    found = {one.relative_to(ROOT).as_posix(): one for one in files if one.is_file()}
    return {path: found[path].read_bytes().lower() for path in sorted(found)}


def test_the_page_has_twenty_tasks() -> None:
    assert len({task for task, _, _ in ROWS}) == len(ROWS) == 20


@pytest.mark.parametrize(("word", "file"), [row[1:] for row in ROWS], ids=[row[1] for row in ROWS])
def test_the_word_finds_the_file_among_the_first_five(
    texts: dict[str, bytes], word: str, file: str
) -> None:
    found = [path for path, text in texts.items() if word.lower().encode() in text]

    assert file in found[:5]

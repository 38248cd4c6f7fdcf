"""What people write of packager is short enough to be read: words in all, and in a decision."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.documents import blocks
from tests.support.places import ROOT
from tests.support.reference_pages import REFERENCE

MOST_WORDS = 60_000  # as `wc -w` counts them
MOST_OF_A_DECISION = 500
TOPS = ("docs", "artifact_cache", "packager", "examples", "tests", "containers", "templates")
# Written by examples/tiny-llama/train.py from a template, which counts.
CARDS = {ROOT / "examples" / name / "README.md" for name in ("tiny-llama", "tiny-llama-draft")}
# Pages of words, of rules and of figures: all others are of something that can be run.
WITHOUT_EXAMPLE = {
    "README", "architecture", "benchmarks", "data", "engine-versions", "glossary", "keys",
    "verified", "where",
}  # fmt: skip


def hand_written() -> Iterator[Path]:
    yield from ROOT.glob("*.md")
    for top in TOPS:
        yield from (ROOT / top).rglob("*.md")


def count_words(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").split())


def test_all_pages_together_can_be_read_through() -> None:
    words = {path: count_words(path) for path in {*hand_written()} - {*REFERENCE} - CARDS}
    largest = sorted(words, key=lambda path: -words[path])[:10]

    assert len(words) > 80
    assert sum(words.values()) <= MOST_WORDS, {
        path.relative_to(ROOT).as_posix(): words[path] for path in largest
    }


@pytest.mark.parametrize(
    "path", sorted((ROOT / "docs/decisions").glob("*.md")), ids=lambda path: path.name
)
def test_a_decision_is_a_page(path: Path) -> None:
    assert count_words(path) <= MOST_OF_A_DECISION


@pytest.mark.parametrize("path", sorted((ROOT / "docs").glob("*.md")), ids=lambda path: path.stem)
def test_a_page_of_a_capability_has_an_example(path: Path) -> None:
    shown = [block for block in blocks(path) if block.stage]

    assert bool(shown) is (path.stem not in WITHOUT_EXAMPLE)

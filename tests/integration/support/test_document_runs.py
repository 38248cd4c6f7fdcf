"""A page's commands are run in order, in a directory of their own, and compared."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.document_runs import opened, run_page

HERE = frozenset({"files", "here"})
PAGE = (Path(__file__).parent / "corpus" / "page.md.txt").read_text("utf-8")


@pytest.fixture
def work(tmp_path: Path) -> Path:
    place = tmp_path / "work"
    place.mkdir()
    return place


def run(tmp_path: Path, work: Path, text: str, *, update: bool = False) -> tuple[str, list[str]]:
    path = tmp_path / "page.md"
    path.write_text(text)
    with opened(path, work, {}) as page:
        run_page(page, HERE)
    if update:
        page.update()
    return path.read_text(), page.failures + page.differences


def test_a_difference_is_told_with_its_line(tmp_path: Path, work: Path) -> None:
    _, told = run(tmp_path, work, PAGE.replace("x = 1\n$", "x = 2\n$"))

    assert len(told) == 1
    assert told[0].startswith("page.md:5\n")
    assert "-x = 2\n+x = 1" in told[0]


def test_an_update_writes_what_is_printed_and_nothing_else(tmp_path: Path, work: Path) -> None:
    stale = PAGE.replace("x = 1\n$", "x = 2\nx = 3\n$").replace("two words\n/", "/")

    assert run(tmp_path, work, stale, update=True)[0] == PAGE


def test_a_command_that_fails_is_a_failure(tmp_path: Path, work: Path) -> None:
    page = "```sh\ncat nothing\n```\n\n```console\n$ cat nothing\nlost\n```\n"

    after, told = run(tmp_path, work, page, update=True)

    assert [one.partition(":\n")[0].split("\n")[0] for one in told] == [
        "page.md:1: status 1: cat nothing",
        "page.md:5: status 1: cat nothing",
    ]
    assert after == page

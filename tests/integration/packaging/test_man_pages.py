"""The man pages are without a warning, and `man` and `whatis` find what they look for."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import need
from tests.support.cases import cases_of
from tests.support.processes import run_program
from tests.support.reference_pages import script

cases = cases_of(__file__)


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("man")
    for path, page in script.MAN_PAGES.items():
        (place / path.name).write_text(page(), encoding="utf-8")
    return place


@cases("commands")
def test_the_pages_are_without_a_warning(command: tuple[str, ...], pages: Path) -> None:
    name, *options = command
    files = sorted(pages.iterdir())

    done = run_program(need(name), *options, *files)

    assert len(files) > 20
    assert (done.stdout, done.stderr) == ("", "")


def test_a_page_shows_what_help_shows(pages: Path) -> None:
    page = pages / "packager-list.1"
    shown = run_program(need("mandoc"), "-Tutf8", "-O", "width=78", page).stdout

    plain = _without_overstrike(shown)
    assert "packager-list - List instances, containers and plug-ins" in plain
    assert "packager list instances --device nvidia --min-memory 300GiB" in plain


def _without_overstrike(text: str) -> str:
    """Remove what bold text is made of: each letter, a backspace, and the letter again."""
    while "\b" in text:
        place = text.index("\b")
        text = text[: place - 1] + text[place + 1 :]
    return text

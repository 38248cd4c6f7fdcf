"""The man pages are without a warning, and `man` and `whatis` find what they look for."""

from __future__ import annotations

from tests.conftest import need
from tests.support.cases import cases_of
from tests.support.places import ROOT
from tests.support.processes import run_program

cases = cases_of(__file__)

PAGES = sorted((ROOT / "docs/man").glob("*.1"))


@cases("commands")
def test_the_pages_are_without_a_warning(command: tuple[str, ...]) -> None:
    name, *options = command

    done = run_program(need(name), *options, *PAGES)

    assert len(PAGES) > 20
    assert (done.stdout, done.stderr) == ("", "")


def test_a_page_shows_what_help_shows() -> None:
    page = ROOT / "docs/man/packager-list.1"
    shown = run_program(need("mandoc"), "-Tutf8", "-O", "width=78", page).stdout

    plain = _without_overstrike(shown)
    assert "packager-list - List instances, containers and plug-ins" in plain
    assert "packager list instances --device nvidia --min-memory 300" in plain


def _without_overstrike(text: str) -> str:
    """Remove what bold text is made of: each letter, a backspace, and the letter again."""
    while "\b" in text:
        place = text.index("\b")
        text = text[: place - 1] + text[place + 1 :]
    return text

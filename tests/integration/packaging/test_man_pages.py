"""The man pages are without a warning, and `man` and `whatis` find what they look for."""

from __future__ import annotations

import subprocess

import pytest

from tests.conftest import need
from tests.support.places import ROOT

PAGES = sorted((ROOT / "docs/man").glob("*.1"))


@pytest.mark.parametrize(
    "command",
    [("groff", "-ww", "-man", "-Tutf8", "-z"), ("mandoc", "-Tlint", "-W", "warning")],
    ids=lambda command: command[0],
)
def test_the_pages_are_without_a_warning(command: tuple[str, ...]) -> None:
    name, *options = command

    done = subprocess.run(
        [need(name), *options, *PAGES], capture_output=True, text=True, timeout=120
    )

    assert len(PAGES) > 20
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)


def test_a_page_shows_what_help_shows() -> None:
    shown = subprocess.run(
        [need("mandoc"), "-Tutf8", "-O", "width=78", ROOT / "docs/man/packager-list.1"],
        capture_output=True,
        text=True,
        timeout=60,
    ).stdout

    plain = _without_overstrike(shown)
    assert "packager-list - List instances, containers and plug-ins" in plain
    assert "packager list instances --device nvidia --min-memory 300" in plain


def _without_overstrike(text: str) -> str:
    """Remove what bold text is made of: each letter, a backspace, and the letter again."""
    while "\b" in text:
        place = text.index("\b")
        text = text[: place - 1] + text[place + 1 :]
    return text

"""What a terminal shows of reports and errors at 40, 80 and 200 columns."""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from packager.cli import app
from packager.cli.terminal import print_report
from packager.core.cached import EntrySummary
from packager.core.reports.cells import cell_width
from packager.core.reports.report import Report
from packager.images.report import inspect_report
from packager.optimize.cache.report import list_report
from tests.support.places import ROOT
from tests.support.screens import Screen
from tests.support.stored_images import image

EXPECTED = Path(__file__).parent / "screens"
WIDTHS = (40, 80, 200)
WRITTEN = tomllib.loads(Path(__file__).with_name("screens.toml").read_text(encoding="utf-8"))
COMMANDS: dict[str, list[str]] = WRITTEN["commands"]


@pytest.fixture
def screen_of(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], Screen]:
    """Make a terminal that is stdout and stderr."""

    def make(columns: int) -> Screen:
        screen = Screen(columns)
        monkeypatch.setenv("COLUMNS", str(columns))
        monkeypatch.setattr(sys, "stdout", screen.stream)
        monkeypatch.setattr(sys, "stderr", screen.stream)
        monkeypatch.chdir(ROOT)
        return screen

    return make


def cache_entries() -> Report:
    return list_report([EntrySummary(**row) for row in WRITTEN["entries"]], 7200.0)


REPORTS: dict[str, Callable[[], Report]] = {
    "cache-ls": cache_entries,
    "inspect": lambda: inspect_report(image()),
}


@pytest.mark.parametrize("columns", WIDTHS)
@pytest.mark.parametrize("name", [*COMMANDS, *REPORTS])
def test_the_screen_is_as_reviewed(
    name: str, columns: int, screen_of: Callable[[int], Screen], update_golden: bool
) -> None:
    screen = screen_of(columns)
    if name in COMMANDS:
        app.run(COMMANDS[name])
    else:
        print_report(REPORTS[name]())
    shown = screen.everything()
    place = EXPECTED / f"{name}-{columns}.txt"
    if update_golden:
        place.write_text(shown, encoding="utf-8")

    assert place.read_text(encoding="utf-8") == shown, (
        "review the difference; `pytest tests/golden --update-golden` accepts it"
    )


@pytest.mark.parametrize("name", COMMANDS)
def test_no_word_is_broken_that_fits_a_line(
    name: str, screen_of: Callable[[int], Screen], capsys: pytest.CaptureFixture[str]
) -> None:
    app.run(COMMANDS[name])
    whole = "".join(capsys.readouterr())
    for columns in (40, 80):
        screen = screen_of(columns)
        app.run(COMMANDS[name])

        written = [line for line in screen.raw.splitlines() if cell_width(line) > columns]
        assert [line for line in written if " " in line.strip()] == []
        assert _words(screen.raw) >= {
            word for word in _words(whole) if cell_width(word) <= columns and not _drawn(word)
        }


def _words(text: str) -> set[str]:
    return set(re.sub(r" \\$", "", text, flags=re.MULTILINE).split())


def _drawn(word: str) -> bool:
    """Whether it is a part of a bar or a chart, which is as wide as there is room."""
    return re.fullmatch(r"[\[|+*o.]?[KWAOSDd.-]*[\]*o.]?|[\d.,]+", word) is not None


def test_no_screen_is_left_behind() -> None:
    assert {path.stem for path in EXPECTED.iterdir()} == {
        f"{name}-{columns}" for name in [*COMMANDS, *REPORTS, "build"] for columns in WIDTHS
    }

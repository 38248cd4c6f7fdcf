"""The references under docs/reference say what the code says."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
import urllib3  # noqa: F401 - opens a socket when it is imported, as commands do

from packager.cli.app import app
from tests.support.cases import cases_of
from tests.support.places import ROOT, SCRIPTS
from tests.support.workers import load

cases = cases_of(__file__)

script = load(SCRIPTS / "make-reference")
man_pages = load(SCRIPTS / "_man_pages.py")


@pytest.mark.parametrize("path", script.PAGES, ids=lambda path: path.name)
@pytest.mark.parametrize("columns", ["40", "300"])
def test_a_reference_is_current_at_any_width_of_the_terminal(
    path: Path, columns: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", columns)

    assert path.read_text(encoding="utf-8") == script.PAGES[path](), "run scripts/make-reference"


def test_every_page_is_of_a_command_that_there_is() -> None:
    made = {path for path in script.PAGES if path.parent.name == "man"}

    assert set((ROOT / "docs/man").iterdir()) == made
    assert len(made) > 20


def test_a_man_page_has_a_command_with_its_options_values_and_examples() -> None:
    page = (ROOT / "docs/man/packager-list.1").read_text(encoding="utf-8")

    assert page.startswith(".TH PACKAGER\\-LIST 1 ")
    assert "\npackager-list \\- List instances, containers and plug\\-ins\n" in page
    assert (
        ".TP\n.B \\-\\-device nvidia|amd|neuron|cpu\nOnly rows for this kind of device.\n" in page
    )
    assert ".SH EXAMPLES\n.nf\npackager list instances \\-\\-device nvidia" in page


def test_a_man_page_of_a_group_has_its_commands() -> None:
    page = (ROOT / "docs/man/packager-cache.1").read_text(encoding="utf-8")

    assert "\n.SH PACKAGER CACHE EXPLAIN\n.B packager cache explain\n" in page
    assert "\n[OPTIONS] [KEY...]\n" in page


@cases("text_is_escaped_for_roff")
def test_text_is_escaped_for_roff(text: str, written: str) -> None:
    assert man_pages.roff(text) == written


def test_every_command_has_a_heading_that_its_group_links_to() -> None:
    page = script.cli_page()

    paths = [path for path, _ in script.commands(app, "packager")]
    assert {"packager", "packager plan", "packager cache ls", "packager warm plan"} <= set(paths)
    for path in paths:
        assert f"\n## {path}\n" in page
        assert path == "packager" or f"](#{path.replace(' ', '-')})" in page


@pytest.mark.parametrize(
    ("option", "spelled", "meaning"),
    [
        (click.Option(["--n"], type=click.IntRange(1, 8)), "`--n N`", "1 to 8."),
        (
            click.Option(["--x"], type=click.FloatRange(0, min_open=True), help="A share."),
            "`--x X`",
            "A share. More than 0.",
        ),
        (click.Option(["--on/--off"], help="It."), "`--on/--off`", "It."),
        (click.Option(["--kind"], type=click.Choice(("a", "b"))), "`--kind a|b`", ""),
        (
            click.Option(["--to"], metavar="DIR", multiple=True, required=True),
            "`--to DIR`",
            "Required. Repeatable.",
        ),
    ],
    ids=["range", "open range", "switch", "choice", "repeatable"],
)
def test_an_option_is_told_with_its_values_and_limits(
    option: click.Option, spelled: str, meaning: str
) -> None:
    assert (script.spelled(option), script.meaning(option)) == (spelled, meaning)

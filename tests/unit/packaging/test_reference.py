"""The references are made from the code, at any width of the terminal."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from packager.cli.app import app
from tests.support.cases import cases_of
from tests.support.places import ROOT, SCRIPTS
from tests.support.reference_pages import script
from tests.support.workers import load

cases = cases_of(__file__)

man_pages = load(SCRIPTS / "_man_pages.py")


@pytest.mark.parametrize("path", script.PAGES, ids=lambda path: path.name)
def test_a_page_is_the_same_at_any_width_of_the_terminal(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    narrow = script.PAGES[path]()
    monkeypatch.setenv("COLUMNS", "300")

    assert script.PAGES[path]() == narrow
    assert narrow.endswith("\n")


def test_git_holds_no_page_that_is_made() -> None:
    ignored = (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()

    assert {"/docs/man/", "/docs/reference/"} <= set(ignored)
    places = {path.parent for path in script.PAGES}
    assert places == {ROOT / "docs/man", ROOT / "docs/reference"}


def test_every_command_has_a_man_page() -> None:
    names = script.app.list_commands(click.Context(script.app))

    pages = {path.stem for path in script.MAN_PAGES}
    assert pages == {"packager", *(f"packager-{name}" for name in names)}
    assert len(pages) > 20


@pytest.mark.parametrize("arguments", [[], ["--man"]], ids=["all", "man"])
def test_the_script_writes_what_it_is_asked_for(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PAGES", "MAN_PAGES"):
        pages = getattr(script, name)
        here = {tmp_path / path.relative_to(ROOT): lambda: "a page\n" for path in pages}
        monkeypatch.setattr(script, name, here)
    monkeypatch.setattr(script, "ROOT", tmp_path)

    assert script.main(arguments) == 0

    assert len(list(tmp_path.rglob("*.1"))) == len(script.MAN_PAGES)
    assert bool(list(tmp_path.rglob("cli.md"))) == (not arguments)


def test_a_man_page_has_a_command_with_its_options_values_and_examples() -> None:
    page = script.MAN_PAGES[ROOT / "docs/man/packager-list.1"]()

    assert page.startswith(".TH PACKAGER\\-LIST 1 ")
    assert "\npackager-list \\- List instances, containers and plug\\-ins\n" in page
    assert (
        ".TP\n.B \\-\\-device nvidia|amd|neuron|cpu\nOnly rows for this kind of device.\n" in page
    )
    assert ".SH EXAMPLES\n.nf\npackager list instances \\-\\-device nvidia" in page


def test_a_man_page_of_a_group_has_its_commands() -> None:
    page = script.MAN_PAGES[ROOT / "docs/man/packager-cache.1"]()

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

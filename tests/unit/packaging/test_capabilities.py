"""Each capability that README promises is held by a test of `make test` against the real thing."""

from __future__ import annotations

import re

import pytest

from tests.support.capabilities import capability_rows, marked_tests, read_capabilities
from tests.support.places import ROOT

CAPABILITIES = read_capabilities()
README = (ROOT / "README.md").read_text("utf-8")
CONTRIBUTING = ROOT / "CONTRIBUTING.md"
TABLE = re.compile(
    r"(?<=\| capability \| asked for real \| tests \|\n\|---\|---\|---\|\n)(\|.*\n)*"
)


@pytest.mark.parametrize("name", CAPABILITIES)
def test_readme_promises_it_in_these_words(name: str) -> None:
    assert CAPABILITIES[name].promise in README


def test_every_mark_is_of_a_capability_and_every_capability_has_one() -> None:
    assert {name for name, _ in marked_tests()} == set(CAPABILITIES)


def test_contributing_shows_which_test_holds_what(request: pytest.FixtureRequest) -> None:
    text = CONTRIBUTING.read_text("utf-8")
    made = "".join(f"{row}\n" for row in capability_rows())
    if request.config.getoption("--update-docs"):
        CONTRIBUTING.write_text(TABLE.sub(lambda _: made, text), "utf-8")
        return

    shown = TABLE.search(text)

    assert shown
    assert shown[0] == made

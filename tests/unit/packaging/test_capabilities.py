"""Each capability that README promises is held by a test of `make test` against the real thing."""

from __future__ import annotations

import pytest

from tests.support.capabilities import held_capabilities, marked_tests, read_capabilities
from tests.support.places import ROOT
from tests.support.reference_pages import read_page

CAPABILITIES = read_capabilities()
README = (ROOT / "README.md").read_text("utf-8")


@pytest.mark.parametrize("name", CAPABILITIES)
def test_readme_promises_it_in_these_words(name: str) -> None:
    assert CAPABILITIES[name].promise in README


def test_every_mark_is_of_a_capability_and_every_capability_has_one() -> None:
    assert {name for name, _ in marked_tests()} == set(CAPABILITIES)


def test_the_reference_shows_which_test_holds_what() -> None:
    page = read_page(ROOT / "docs/reference/capabilities.md")

    for one, tests in held_capabilities():
        assert tests
        assert f"| {one.name} | " in page
        assert all(f"`{test}`" in page for test in tests)

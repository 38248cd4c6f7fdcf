"""Every promise of SECURITY.md names tests, and those tests are there."""

from __future__ import annotations

import re

import pytest

from tests.support.places import ROOT

PROMISES = [
    line
    for line in (ROOT / "SECURITY.md").read_text("utf-8").splitlines()
    if line.startswith("| ") and not line.startswith("| promise")
]


def test_the_page_promises_something() -> None:
    assert len(PROMISES) > 20


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise[2:42])
def test_a_promise_is_held_by_tests_that_exist(promise: str) -> None:
    names = re.findall(r"`(tests/[^`]+)`", promise.rsplit("|", 2)[1])

    assert names
    for name in names:
        path, _, function = name.partition("::")
        text = (ROOT / path).read_text("utf-8")
        assert "\ndef test_" in text
        assert not function or f"\ndef {function}(" in text, name

"""Versions as engines, nightlies and image tags write them."""

from __future__ import annotations

from itertools import pairwise

import pytest

from packager.core.versions import release_of, version_key
from tests.support.cases import cases, read_tables

IN_ORDER = read_tables(__file__)["in_order"]


@pytest.mark.parametrize(("before", "after"), list(pairwise(IN_ORDER)))
def test_versions_sort_as_they_were_released(before: str, after: str) -> None:
    first, second = version_key(before), version_key(after)

    assert first is not None
    assert second is not None
    assert first < second


@cases("a_spelling_is_the_same_version")
def test_a_spelling_is_the_same_version(text: str, same: str) -> None:
    assert version_key(text) is not None
    assert version_key(text) == version_key(same)


@cases("what_is_no_version_of_the_engine_is_none")
def test_what_is_no_version_of_the_engine_is_none(text: str) -> None:
    assert version_key(text) is None


@cases("a_version_of_thousands_of_digits_is_none")
def test_a_version_of_thousands_of_digits_is_none(text: str) -> None:
    assert version_key(text) is None


@pytest.mark.parametrize("text", ["1.3.0rc20", "1.3.0.post2", "1.3.0.dev5+gabc", "1.3", "v1.3.0"])
def test_what_leads_to_a_release_counts_as_that_release(text: str) -> None:
    version, ended = version_key(text), version_key("1.3")

    assert version is not None
    assert ended is not None
    assert release_of(version) == ended

"""What a search found, in a sentence."""

from __future__ import annotations

from typing import Any

from packager.addons.bench.page_tables import boundary_words
from packager.core.bench import Boundary
from tests.support.cases import cases


@cases("sentences")
def test_a_search_ends_in_a_sentence(found: dict[str, Any], words: str) -> None:
    boundary = Boundary(**({"what": "max-concurrency", "feasible": None} | found))

    assert boundary_words(boundary) == words

"""Requests of the corpus: packager and the engines' own parsers and checks say the same.

The verdicts were recorded by `scripts/engine-verdicts`; docs/engine-versions.md says how.
"""

from __future__ import annotations

import pytest

from tests.support.corpus import FAMILIES
from tests.unit.engines.test_corpus import AGREED, cases

# Shares of the verdicts in which packager agrees, at least: of all, and of each family's.
AGREED_OF_ALL = 0.98


@pytest.mark.parametrize("family", AGREED)
def test_packager_says_of_requests_what_the_engine_says(family: str) -> None:
    judged = cases(family)
    wrong = [case for case in judged if not case.agrees]

    share = 1 - len(wrong) / len(judged)

    assert share >= AGREED[family], "\n".join([f"{share:.1%}", *map(str, wrong)])


def test_packager_agrees_with_the_engines_in_98_of_100_verdicts() -> None:
    judged = [case for family in FAMILIES for case in cases(family)]

    share = sum(case.agrees for case in judged) / len(judged)

    assert share >= AGREED_OF_ALL

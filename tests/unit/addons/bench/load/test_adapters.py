"""Which adapter each request of a load is for."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest

from packager.addons.bench.load.adapters import AdapterMix, dealt, parse_shares, settle_shares
from packager.addons.bench.load.values import LoadRequest
from packager.core.errors import UsageError
from tests.support.cases import cases_of

cases = cases_of(__file__)


@cases("shares", listed=(), zipf=None)
def test_shares_add_up_to_one(
    given: tuple[str, ...], listed: tuple[str, ...], zipf: float | None, shares: dict[str, float]
) -> None:
    found = settle_shares(parse_shares(given), listed, zipf)

    assert list(found) == list(shares)
    assert found == pytest.approx(shares)


@cases("refused")
def test_what_is_no_share_is_refused(given: tuple[str, ...], match: str) -> None:
    with pytest.raises(UsageError, match=match):
        settle_shares(parse_shares(given), (), None)


def test_requests_are_dealt_by_their_shares_and_alike_for_every_server() -> None:
    mix = AdapterMix(shares={"sql": 0.75, "tiny": 0.25}, models={"sql": "tiny:sql", "tiny": "tiny"})

    def deal(*key: object) -> list[LoadRequest]:
        requests = itertools.repeat(LoadRequest(endpoint="/v1/completions", body={}), 1000)
        return list(dealt(requests, mix, *key))

    first, other = deal(0, "round 0"), deal(0, "round 1")
    assert first == deal(0, "round 0") != other
    assert Counter(one.model for one in first)["tiny:sql"] == pytest.approx(750, abs=60)
    assert {one.adapter for one in first if one.model == "tiny:sql"} == {"sql"}

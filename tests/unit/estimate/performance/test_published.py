"""Published speeds: what they correct, by how much, and for whom."""

from __future__ import annotations

from math import exp, log
from typing import Any

import pytest

from packager.estimate.performance.published import (
    PublishedPoint,
    PublishedQuery,
    PublishedSet,
    correction_for,
    correction_sentence,
    log_factor,
    published_table,
    share_held,
)
from tests.support.cases import cases_of

cases = cases_of(__file__)


def one_set(times: float, **told: Any) -> PublishedSet:
    """Return a set of one point, so many times as slow as predicted."""
    return PublishedSet(
        source="somebody/somewhere@1 page.md",
        date="2026-05-01",
        engine=told.get("engine", "sglang"),
        version="",
        model="m",
        form=(told["hidden"], 10, 8),
        kind="moe",
        scheme="",
        latent=told.get("latent", False),
        known=told.get("known", True),
        device="B200",
        vendor=told.get("vendor", "nvidia"),
        tp_degree=8,
        expert_parallel=False,
        figure="tpot_ms",
        points=(
            PublishedPoint(
                input_tokens=1,
                output_tokens=1,
                concurrency=1,
                published=10 * times,
                predicted=10,
            ),
        ),
    )


@cases("factors")
def test_times_are_multiplied_by_what_published_servers_tell(
    sets: list[dict[str, Any]], times: float, asked: dict[str, Any]
) -> None:
    known = [one_set(**row) for row in sets]
    wanted = {"latent": False, "has_curves": False, "vendor": "nvidia"} | asked

    found = log_factor(
        known, PublishedQuery(engine="sglang", kind="moe", form=(1, 10, 8), **wanted)
    )

    assert exp(found) == pytest.approx(times, abs=0.005)


def test_a_band_holds_nine_of_ten_points_however_many_one_set_has() -> None:
    alone, many = [1.0], [0.1] * 9

    assert share_held([alone, many], abs) == 1.0  # one of two sets
    assert share_held([[0.2] * 9, [0.3], [0.4] * 90], abs) == 0.4  # 90 of 100 points


def test_shipped_sets_name_their_source_and_are_not_far_from_what_is_predicted() -> None:
    sets = published_table().sets

    assert len(sets) > 40
    for one in sets:
        assert one.source and one.date >= "2024" and one.points
        assert abs(one.middle) < log(6), one.model


@pytest.mark.parametrize("device", ["H100", "H200", "B200", "never heard of"])
def test_a_factor_is_the_same_on_all_devices_so_that_it_turns_none_around(device: str) -> None:
    """GLM-4.6 was published on B200 alone."""
    asked = PublishedQuery(
        engine="sglang",
        kind="moe",
        vendor="nvidia",
        form=(5120, 92, 160),
        latent=False,
        has_curves=False,
    )
    found, there = (correction_for(asked, name, (8, False, "")) for name in (device, "B200"))

    assert found.times == there.times > 1.2
    assert found.errors and there.errors
    assert found.errors.tpot >= there.errors.tpot
    assert "9 published points of GLM-4.6 (sglang 0.5.6.post1 on 8xB200" in correction_sentence(
        there
    )

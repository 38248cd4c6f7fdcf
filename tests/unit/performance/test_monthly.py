"""What a month costs: whole machines for a stated load."""

from __future__ import annotations

from dataclasses import replace

import pytest

from packager.performance.monthly import (
    MonthlyCost,
    busiest_point,
    monthly_cost,
    monthly_document,
    monthly_sentence,
)
from packager.performance.predict import Band, Bands, Point, Prediction
from packager.performance.report_outlook import make_outlook
from tests.support.report_values import outlook_of, plan_on

PLAN = plan_on("ml.g5.xlarge")
PLAN = replace(PLAN, instance=replace(PLAN.instance, price_usd_hour=2.0))


def point(concurrency: int, tokens_s: float, tpot_s: float) -> Point:
    return Point(
        concurrency=concurrency,
        prefill_s=0.1,
        tpot_s=tpot_s,
        step_s=tpot_s,
        latency_s=1.0,
        output_tokens_s=tokens_s,
        input_tokens_s=tokens_s,
    )


def predicted(*points: Point, band: float = 0.0) -> Prediction:
    """Predict answers of 250 tokens: 250 tokens a second are 86,400 requests a day."""
    share = Band(share=band, source="")
    prediction = outlook_of(PLAN).prediction
    return replace(prediction, points=points, bands=Bands(tpot=share, throughput=share))


@pytest.mark.parametrize(
    ("requests", "machines", "usd"),
    [(1, 1, 1460.0), (86_400, 1, 1460.0), (86_401, 2, 2920.0), (1_000_000, 12, 17_520.0)],
)
def test_whole_machines_are_paid_for_all_month(requests: int, machines: int, usd: float) -> None:
    cost = monthly_cost(PLAN, predicted(point(1, 250, 0.01)), requests)

    assert cost is not None
    assert (cost.machines, cost.usd) == (machines, usd)
    assert (cost.capacity_per_day, cost.usd_of_one) == (86_400, 1460.0)


def test_the_band_makes_a_range_of_machines() -> None:
    cost = monthly_cost(PLAN, predicted(point(1, 250, 0.01), band=0.5), 86_400)

    assert cost is not None
    assert (cost.machines, cost.most_machines, cost.most_usd) == (1, 2, 2920.0)


def test_a_discount_is_taken_off() -> None:
    cost = monthly_cost(PLAN, predicted(point(1, 250, 0.01)), 1, discount=0.25)

    assert cost is not None
    assert cost.usd == 1095.0


def test_tokens_that_come_too_late_do_not_count() -> None:
    slow, quick = point(64, 900, 0.2), point(8, 500, 0.05)

    assert busiest_point([quick, slow], 0.1) is quick
    assert busiest_point([quick, slow], 0.3) is slow
    assert busiest_point([quick, slow], 0.01) is quick  # none is in time


def test_without_a_price_there_is_no_month() -> None:
    plan = replace(PLAN, instance=replace(PLAN.instance, price_usd_hour=None))

    assert monthly_cost(plan, predicted(point(1, 250, 0.01)), 1) is None
    assert make_outlook(plan, outlook_of(PLAN).prediction).monthly is None
    assert monthly_document(None) is None


def test_the_sentence_states_load_machines_and_what_one_holds() -> None:
    cost = MonthlyCost(
        requests_per_day=100_000,
        capacity_per_day=60_000,
        machines=2,
        most_machines=3,
        usd=2920.0,
        most_usd=4380.0,
        usd_of_one=1460.0,
    )

    assert monthly_sentence(cost, outlook_of(PLAN).prediction) == (
        "$2,920 a month for 100,000 requests a day (622 tokens in, 250 out): 2 instances, always "
        "on; up to 3 at the slow end of the band; one holds 60,000 requests a day"
    )

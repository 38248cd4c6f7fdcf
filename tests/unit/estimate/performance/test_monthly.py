"""What a month costs: whole machines for a stated load."""

from __future__ import annotations

from dataclasses import replace

from packager.estimate.performance.monthly import (
    MonthlyCost,
    busiest_point,
    monthly_cost,
    monthly_document,
    monthly_sentence,
)
from packager.estimate.performance.predict import Band, Bands, Point, Prediction
from packager.estimate.performance.report_outlook import make_outlook
from tests.support.cases import as_type, cases_of, read_tables
from tests.support.known import known
from tests.support.predictions import point
from tests.support.report_values import outlook_of, plan_on

cases = cases_of(__file__)

PLAN = plan_on("ml.g5.xlarge")
PLAN = replace(PLAN, instance=replace(PLAN.instance, price_usd_hour=2.0))


ONE = point(1, output_tokens_s=250)  # a token each 10 ms


def predicted(*points: Point, band: float = 0.0) -> Prediction:
    """Predict answers of 250 tokens: 250 tokens a second are 86,400 requests a day."""
    share = Band(share=band, source="")
    prediction = outlook_of(PLAN).prediction
    return replace(prediction, points=points, bands=Bands(tpot=share, throughput=share))


@cases("machines")
def test_whole_machines_are_paid_for_all_month(requests: int, machines: int, usd: float) -> None:
    cost = known(monthly_cost(PLAN, predicted(ONE), requests))

    assert (cost.machines, cost.usd) == (machines, usd)
    assert (cost.capacity_per_day, cost.usd_of_one) == (86_400, 1460.0)


def test_the_band_makes_a_range_of_machines() -> None:
    cost = known(monthly_cost(PLAN, predicted(ONE, band=0.5), 86_400))

    assert (cost.machines, cost.most_machines, cost.most_usd) == (1, 2, 2920.0)


def test_a_discount_is_taken_off() -> None:
    assert known(monthly_cost(PLAN, predicted(ONE), 1, discount=0.25)).usd == 1095.0


def test_tokens_that_come_too_late_do_not_count() -> None:
    slow, quick = (
        point(64, output_tokens_s=900, tpot_s=0.2),
        point(8, output_tokens_s=500, tpot_s=0.05),
    )

    assert busiest_point([quick, slow], 0.1) is quick
    assert busiest_point([quick, slow], 0.3) is slow
    assert busiest_point([quick, slow], 0.01) is quick  # none is in time


def test_without_a_price_there_is_no_month() -> None:
    plan = replace(PLAN, instance=replace(PLAN.instance, price_usd_hour=None))

    assert monthly_cost(plan, predicted(ONE), 1) is None
    assert make_outlook(plan, outlook_of(PLAN).prediction).monthly is None
    assert monthly_document(None) is None


def test_the_sentence_states_load_machines_and_what_one_holds() -> None:
    cost = as_type(read_tables(__file__)["monthly_cost"], MonthlyCost)

    assert monthly_sentence(cost, outlook_of(PLAN).prediction) == (
        "$2,920 a month for 100,000 requests a day (622 tokens in, 250 out): 2 instances, always "
        "on; up to 3 at the slow end of the band; one holds 60,000 requests a day"
    )

"""Cost of a plan's tokens, for comparing machines."""

from __future__ import annotations

from packager.core.catalog import Accelerator
from packager.core.plan import Plan
from packager.estimate.performance.choice import Objective
from packager.estimate.performance.predict import can_predict, concurrencies_of, predict, setup_of
from packager.estimate.performance.ranking import choose_point, prices_at


def token_cost(plan: Plan, accelerator: Accelerator, target: Objective) -> float | None:
    """Return US dollars per million output tokens (F3), at the target's number of requests.

    None without a price or published figures of the devices.
    """
    setup = setup_of(plan, accelerator)
    if plan.instance.price_usd_hour is None or not can_predict(setup):
        return None
    prediction = predict(setup, target.workload, concurrencies_of(plan))
    if prediction is None:
        return None
    prices = prices_at(plan, prediction, choose_point(prediction, target))
    return prices.output if prices else None

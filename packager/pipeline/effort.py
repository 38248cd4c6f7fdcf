"""Estimated time, machine and price of the steps that have to run."""

from __future__ import annotations

from dataclasses import replace

from packager.estimate.performance.job import Market, with_effort
from packager.pipeline.quality import planned_evaluation
from packager.pipeline.services import BuildServices
from packager.pipeline.stages import Planned


def market_of(services: BuildServices) -> Market:
    """Gather what steps are timed and priced with."""
    return Market(
        here=services.this_machine() if services.this_machine else None,
        instances=services.instances or (),
        accelerator_of=services.accelerator_of,
        past=services.past(),
    )


def with_times(planned: Planned, services: BuildServices) -> Planned:
    """Add to each cache miss the estimated time, machine and price of running the step."""
    steps = {step.name: step for step in planned.recipe.steps}
    found = [(forecast, steps[forecast.step]) for forecast in planned.forecasts]
    found += planned_evaluation(planned.facts, planned.plan)
    if all(forecast.state == "hit" for forecast, _ in found):
        return planned
    market = market_of(services)
    timed = (with_effort(forecast, step, market) for forecast, step in found)
    return replace(planned, forecasts=tuple(timed))

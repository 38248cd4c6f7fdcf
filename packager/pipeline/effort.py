"""Estimated time, machine and price of the steps that have to run."""

from __future__ import annotations

from dataclasses import replace

from packager.core.units import dollars
from packager.estimate.performance.job import Market, with_effort
from packager.pipeline.planning.recipe import quantizer_of
from packager.pipeline.quality import planned_evaluation
from packager.pipeline.services import BuildServices
from packager.pipeline.stages import Planned

STREAMS = "quantize-streams"  # the finding of weights that are quantized while they are read


def market_of(services: BuildServices) -> Market:
    """Gather what steps are timed and priced with."""
    return Market(
        here=services.this_machine() if services.this_machine else None,
        instances=services.instances or (),
        accelerator_of=services.accelerator_of,
        past=services.past(),
    )


def with_times(planned: Planned, services: BuildServices) -> Planned:
    """Add to each cache miss the estimated time, machine and price of running the step.

    Where weights are quantized in the stream, its finding gets the price.
    """
    if "quantize" in planned.recipe.finishes:
        planned = _with_price_of_stream(planned, services)
    looked_up = (*planned.recipe.steps, *([planned.layers] if planned.layers else ()))
    steps = {step.name: step for step in looked_up}
    found = [(forecast, steps[forecast.step]) for forecast in planned.forecasts]
    found += planned_evaluation(planned.facts, planned.plan)
    if all(forecast.state == "hit" for forecast, _ in found):
        return planned
    market = market_of(services)
    timed = (with_effort(forecast, step, market) for forecast, step in found)
    return replace(planned, forecasts=tuple(timed))


def _with_price_of_stream(planned: Planned, services: BuildServices) -> Planned:
    quantizer = quantizer_of(planned.plan, planned.facts, planned.planning)
    seconds = quantizer.processor_s(planned.facts, planned.plan) if quantizer else 0.0
    offers = [
        (seconds / one.vcpus / 3600 * one.price_usd_hour, one.name)
        for one in services.instances or ()
        if one.kind == "cpu" and one.vcpus and one.price_usd_hour
    ]
    if not seconds or not offers:
        return planned
    price, name = min(offers)
    findings = tuple(
        replace(one, message=f"{one.message}; {dollars(price)} of {name}, which costs least")
        if one.code == STREAMS
        else one
        for one in planned.plan.findings
    )
    return replace(planned, plan=replace(planned.plan, findings=findings))

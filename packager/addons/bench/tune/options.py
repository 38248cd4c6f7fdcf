"""A tune as requested; the command's options are made from the fields."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from packager.addons.bench.tune.halving import ROUNDS
from packager.core.fields import CommandOption
from packager.core.plan import Plan
from packager.core.workload import Workload
from packager.estimate.performance.presets import Goal

MOST_AT_ONCE = 1024
MOST_BY_ITSELF = 64  # default of concurrent requests


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneOptions:
    """How candidates are compared, and what may be spent on it."""

    concurrency: Annotated[
        tuple[Annotated[int, Field(ge=1, le=MOST_AT_ONCE)], ...],
        Field(
            description="requests at a time, one load each; by default the workload's, or as "
            "the goal asks"
        ),
        CommandOption(metavar="N,N"),
    ] = ()
    rounds: Annotated[
        int,
        Field(ge=2, le=20, description="times that a candidate is measured that stays to the end"),
    ] = ROUNDS
    budget_measurements: Annotated[
        int | None,
        Field(
            ge=1,
            description="rounds of candidates to measure at most; by default 60 % of all, where "
            "no other budget is given",
        ),
    ] = None
    budget_usd: Annotated[
        float | None,
        Field(gt=0, description="dollars to spend at most, at the price of the instance's hour"),
        CommandOption(metavar="USD"),
    ] = None
    keep_images: Annotated[
        bool, Field(description="keep the images of all candidates in the Docker Engine")
    ] = False
    only: Annotated[
        bool,
        Field(description="try nothing but the request as it is and what --try, --candidate name"),
    ] = False


def levels_for(goal: Goal, workload: Workload, plan: Plan) -> tuple[int, ...]:
    """Return the default of concurrent requests that candidates are measured with."""
    if workload.concurrency:
        return (workload.concurrency,)
    if goal == "latency":
        return (1,)
    return (max(1, min(MOST_BY_ITSELF, plan.shape.max_batch * plan.replicas)),)

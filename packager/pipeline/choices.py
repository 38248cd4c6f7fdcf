"""Choices that a page shows side by side, each with its cost and the command that builds it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from packager.core.plan import Plan
from packager.core.quality import QualityReport, limits_of
from packager.core.request import BuildRequest
from packager.estimate.performance.monthly import MonthlyCost
from packager.estimate.performance.predict import Point
from packager.estimate.performance.presets import Goal
from packager.estimate.performance.pricing import TokenPrices
from packager.estimate.performance.ranking import (
    RankedInstance,
    Ranking,
    fastest_of,
    lowest_bill_of,
)
from packager.optimize.evaluate.report import quality_line
from packager.pipeline.report_plan import PlanPage, spread_words
from packager.pipeline.trace import build_command

TITLES: Mapping[Goal, str] = {
    "cost": "Fewest dollars per token",
    "latency": "Fastest for one reader",
    "throughput": "Most tokens per second",
}
MOST_CHOICES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanChoice:
    """One way to serve the model."""

    titles: tuple[str, ...]
    plan: Plan
    options: str  # changes to the request
    command: str  # `packager build` with these options; "" where nothing can be built
    quality: str
    is_quality_known: bool
    point: Point | None = None
    prices: TokenPrices | None = None
    monthly: MonthlyCost | None = None

    @property
    def title(self) -> str:
        """Join the titles to one: `As asked, fewest dollars per token`."""
        first, *others = self.titles
        return ", ".join([first, *(title[:1].lower() + title[1:] for title in others)])


def plan_choices(
    page: PlanPage,
    request: BuildRequest,
    quality: QualityReport | None = None,
    shared: tuple[str, ...] = (),
) -> tuple[PlanChoice, ...]:
    """Return the plan, then the best plans of its instance for other goals, where they differ.

    `shared` are options outside the request that the build command needs, too.
    """
    last = page.outlook.points[-1] if page.outlook else None
    words, is_known = quality_words(page.plan, request, quality)
    asked = PlanChoice(
        titles=("As asked",),
        plan=page.plan,
        options="",
        command=build_command(request, page.plan, {}, *shared),
        quality=words,
        is_quality_known=is_known,
        point=last.point if last else None,
        prices=last.prices if last else None,
        monthly=page.outlook.monthly if page.outlook else None,
    )
    anywhere = [
        _of_option(option, request, title, shared)
        for title, option in (page.elsewhere.picked if page.elsewhere else ())
    ]
    others = [_of_option(option, request, TITLES[goal], shared) for goal, option in page.menu or ()]
    same = [  # its weights are those that were measured
        replace(choice, quality=words, is_quality_known=is_known)
        if choice.plan.quantization == page.plan.quantization
        else choice
        for choice in others
    ]
    return _merged([asked, *anywhere, *same], MOST_CHOICES + len(anywhere))


def ranking_choices(
    ranking: Ranking, request: BuildRequest, shared: tuple[str, ...] = ()
) -> tuple[PlanChoice, ...]:
    """Return the best for the goal, the lowest bill of a month, and the fastest for one reader."""
    return _merged(_of_option(option, request, title, shared) for title, option in _picked(ranking))


def _picked(ranking: Ranking) -> Iterator[tuple[str, RankedInstance]]:
    if not ranking.options:
        return
    yield TITLES[ranking.goal], ranking.options[0]
    if cheapest := lowest_bill_of(ranking.options):
        yield "Lowest bill a month", cheapest
    if fastest := fastest_of(ranking.options):
        yield TITLES["latency"], fastest
    in_time = [option for option in ranking.options if option.in_time]
    if ranking.goal != "cost" and (by_token := [one for one in in_time if one.prices]):
        yield TITLES["cost"], min(by_token, key=_usd_of_tokens)


def _usd_of_tokens(option: RankedInstance) -> float:
    return option.prices.output if option.prices else float("inf")


def _of_option(
    option: RankedInstance, request: BuildRequest, title: str, shared: tuple[str, ...]
) -> PlanChoice:
    changes: dict[str, Any] = dict(option.candidate.changes)
    if request.quantize == "auto":  # the ranking tried each method by name, and none
        changes.setdefault("quantize", None)
    words, is_known = quality_words(option.plan, request)
    return PlanChoice(
        titles=(title,),
        plan=option.plan,
        options=option.candidate.options,
        command=build_command(request, option.plan, changes, *shared),
        quality=words,
        is_quality_known=is_known,
        point=option.point,
        prices=option.prices,
        monthly=option.monthly,
    )


def _merged(choices: Iterable[PlanChoice], most: int = MOST_CHOICES) -> tuple[PlanChoice, ...]:
    """Join choices that serve alike under both titles."""
    found: dict[tuple[object, ...], PlanChoice] = {}
    for choice in choices:
        plan = choice.plan
        served = (plan.instance.name, plan.precision, spread_words(plan), plan.shape, plan.draft)
        if served in found:
            first = found[served]
            titles = tuple(dict.fromkeys((*first.titles, *choice.titles)))
            found[served] = replace(first, titles=titles)
        else:
            found[served] = choice
    return tuple(found.values())[:most]


def quality_words(
    plan: Plan, request: BuildRequest, measured: QualityReport | None = None
) -> tuple[str, bool]:
    """Describe the known effect on quality, and return whether that is complete."""
    if measured is not None:
        return f"measured, of the same weights: {quality_line(measured).partition(': ')[2]}", True
    if plan.quantization is None or plan.quantization.existing:
        kept = "the weights are served as published"
        if plan.quantization:
            kept = f"the checkpoint is {plan.quantization.scheme} already, and served as published"
        if plan.kv_dtype != "auto":
            return f"{kept}; what the {plan.kv_dtype} cache changes is not measured", False
        return kept, True
    if request.evaluation is None:
        return "unknown until measured: add --evaluate default, and the build tells", False
    refused = limits_of(request).words
    return f"unknown until measured: the build measures it, and refuses {refused}", False

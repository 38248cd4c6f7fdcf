"""What the stated load costs elsewhere in the catalog, and what quantizing would change."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from packager.core.errors import PackagerError, PlanRejected, UsageError
from packager.core.instance import Instance
from packager.core.measurement import MeasuredRun
from packager.core.recipe import CacheStatus
from packager.core.reports.report import (
    Column,
    Medium,
    Pair,
    Pairs,
    Row,
    Section,
    Table,
    Words,
    number_columns,
)
from packager.core.request import BuildRequest
from packager.core.units import gib, usd
from packager.estimate.performance.monthly import MonthlyCost, monthly_document
from packager.estimate.performance.presets import REQUESTS_PER_DAY
from packager.estimate.performance.ranking import RankedInstance, fastest_of, lowest_bill_of
from packager.estimate.performance.report_outlook import point_document
from packager.optimize.quantize.method import AUTO, NONE, methods_to_try
from packager.optimize.steps.report import duration
from packager.pipeline import pipeline
from packager.pipeline.rank import rank_instances
from packager.pipeline.services import BuildServices

_COLUMNS = (
    Column("weights"),
    *number_columns("of each device", "requests at once", "ms per token", "tokens/s", "$/month"),
    Column("once, before it serves"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantizedOption:
    """The asked instance with weights of one kind."""

    method: str  # `none`: as they are
    option: RankedInstance
    steps: tuple[CacheStatus, ...] = ()  # what has to be run once


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogChoices:
    """The catalog's answers to a request on one instance."""

    cheapest: RankedInstance | None  # lowest bill of a month at the stated load, in time
    fastest: RankedInstance | None  # for one reader
    considered: int
    quantized: tuple[QuantizedOption, ...] = ()  # what was asked first

    @property
    def picked(self) -> tuple[tuple[str, RankedInstance], ...]:
        """Return the cheapest and the fastest, each with its title."""
        found = (("Lowest bill anywhere", self.cheapest), ("Fastest anywhere", self.fastest))
        return tuple((title, option) for title, option in found if option is not None)

    def document(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {
            "considered": self.considered,
            "cheapest": _document(self.cheapest),
            "fastest": _document(self.fastest),
            "quantized": [
                {"method": one.method, **(_document(one.option) or {})} for one in self.quantized
            ],
        }


def look_elsewhere(
    request: BuildRequest,
    services: BuildServices,
    instance: Instance,
    *,
    discount: float = 0.0,
    requests_per_day: int = REQUESTS_PER_DAY,
    measured: Sequence[MeasuredRun] = (),
) -> CatalogChoices:
    """Plan the request on every machine of the catalog, and on its own with other weights."""

    def rank(asked: BuildRequest, machines: Sequence[Instance]) -> tuple[RankedInstance, ...]:
        with suppress(PlanRejected, UsageError):
            return rank_instances(
                asked,
                services,
                machines,
                discount=discount,
                requests_per_day=requests_per_day,
                measured=measured,
            ).options
        return ()

    machines = services.instances or ()
    whole = rank(request, machines)
    is_quantized = request.quantizing not in (None, AUTO)
    methods = (
        (request.quantize or NONE, NONE)
        if is_quantized
        else methods_to_try(instance, quantized=False)
    )
    quantized: list[QuantizedOption] = []
    for method in dict.fromkeys(methods) if not request.quantize_layer else ():
        changed = request.model_copy(update={"quantize": method})
        if found := rank(changed, (instance,)):
            steps = _steps(changed, services) if method != NONE else ()
            quantized.append(QuantizedOption(method=method, option=found[0], steps=steps))
    return CatalogChoices(
        cheapest=lowest_bill_of(whole),
        fastest=fastest_of(whole),
        considered=len(machines),
        quantized=tuple(quantized) if len(quantized) > 1 else (),
    )


def _document(option: RankedInstance | None) -> dict[str, Any] | None:
    if option is None:
        return None
    return {
        "instance": option.plan.instance.name,
        "options": option.candidate.options,
        "precision": option.plan.precision,
        "point": point_document(option.prediction, option.point),
        "monthly": monthly_document(option.monthly),
    }


def _steps(request: BuildRequest, services: BuildServices) -> tuple[CacheStatus, ...]:
    try:
        return pipeline.plan(request, services).forecasts
    except PackagerError:
        return ()  # what cannot be told of a step is not told


def quantized_section(quantized: Sequence[QuantizedOption]) -> Section:
    """Return what the asked instance does with other weights, and what they cost once."""
    rows = tuple(Row(tuple(_cells(one))) for one in quantized)
    return Section(
        key="quantized",
        title="What quantizing would change",
        heading="quantized",
        parts=(
            Table(
                columns=_COLUMNS,
                rows=rows,
                caption="The same instance and load with weights of other kinds",
                indent=2,
            ),
            Words(
                "what a method costs in quality is known once it is measured: --evaluate default "
                "measures it in the build"
            ),
        ),
    )


def _cells(one: QuantizedOption) -> Iterator[str]:
    plan, point = one.option.plan, one.option.point
    name = plan.precision if one.method == NONE else f"{plan.precision} (--quantize {one.method})"
    yield name
    yield gib(plan.budget.weights_bytes)
    yield f"{plan.full_requests * plan.replicas:,}"
    yield f"{point.tpot_s * 1e3:,.1f}"
    yield f"{point.output_tokens_s:,.0f}"
    yield month_words(one.option.monthly).removeprefix("$") if one.option.monthly else "–"
    yield once_words(one.steps) or "nothing"


def once_words(steps: Sequence[CacheStatus]) -> str:
    """Return what is paid once: hours, and dollars where the step fits; "" for nothing."""
    sentences = []
    for step in steps:
        if step.state == "hit":
            continue
        seconds = step.where_seconds or step.seconds
        took = duration(seconds) if seconds else "for an unknown time"
        where = f" on {step.where.partition(' ')[0]}" if step.where else " here"
        price = f", ${usd(step.where_usd)}" if step.where_usd is not None else ""
        sentences.append(f"{step.step} {took}{where}{price}")
    return "; ".join(sentences)


def month_words(month: MonthlyCost) -> str:
    """Return a bill of a month with the dearer end of its band: `$9,316 to $12,422`."""
    if month.most_usd > month.usd:
        return f"${month.usd:,.0f} to ${month.most_usd:,.0f}"
    return f"${month.usd:,.0f}"


def anywhere_section(elsewhere: CatalogChoices, medium: Medium = "text") -> Section:
    """Return the cheapest and the fastest machine of the catalog for the stated load."""
    pairs = []
    for label, option in (("lowest bill", elsewhere.cheapest), ("fastest", elsewhere.fastest)):
        if option is not None:
            pairs.append(Pair(label, machine_words(option)))
    return Section(
        parts=(Pairs(tuple(pairs), is_listed=True),),
        heading="anywhere in the catalog",
        medium=medium,
    )


def machine_words(option: RankedInstance) -> str:
    """Return a machine, its bill of a month, its speed and the options that it takes."""
    month = f"{month_words(option.monthly)} a month, " if option.monthly else ""
    options = f" with {option.candidate.options}" if option.candidate.options else ""
    speed = f"{option.point.tpot_s * 1e3:,.1f} ms per token"
    return f"{option.plan.instance.name}: {month}{speed}{options}"

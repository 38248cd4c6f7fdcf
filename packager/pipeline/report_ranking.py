"""A ranking as a report: choices side by side, price against speed, and every instance."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from packager.core.instance import Instance
from packager.core.reports.report import (
    Column,
    Report,
    Row,
    Section,
    Table,
    Words,
    number_columns,
    word_columns,
)
from packager.core.units import counted, usd
from packager.estimate.performance.presets import PRESETS
from packager.estimate.performance.ranking import (
    RankedInstance,
    Ranking,
    SkippedInstance,
    lowest_bill_of,
    pareto,
)
from packager.estimate.performance.report_rank import (
    closing_sentence,
    limit_words,
    option_cells,
    ranking_chart,
    ranking_sections,
)
from packager.pipeline.choices import PlanChoice
from packager.pipeline.elsewhere import month_words
from packager.pipeline.report_page import FOOTER, choices_sections, origin_words, trace_sections
from packager.pipeline.trace import Trace

CLOUDS = {
    "sagemaker": "SageMaker",
    "ec2": "Amazon EC2",
    "gcp": "Google Cloud",
    "azure": "Azure",
    "bare": "own machine",
}
_COLUMNS = (
    Column("instance"),
    Column("provider", field="provider"),
    Column("devices", field="device"),
    Column("$/hour", is_number=True, field="hour"),
    *number_columns("$/month", "how many", "$/1M out", "tokens/s", "ms per token"),
    *number_columns("requests at once", "band"),
    *word_columns("weights", "TP x copies", "with"),
)
_LINE = (
    "the line joins the instances that no other beats in both price and speed; grey ones are "
    "beaten, the ringed one is best for the goal"
)
_READING = (
    "$/month and how many instances it takes are for the load above; $/1M out is at full load. TP "
    "x copies: devices that share one copy, and copies. Band: how far off tokens, times and "
    "prices may be. “!” marks a token later than the limit"
)


def ranking_report(
    ranking: Ranking,
    model: str,
    *,
    trace: Trace | None = None,
    choices: tuple[PlanChoice, ...] = (),
    discount: float = 0.0,
) -> Report:
    """Return a ranking with those that were left out."""
    best = ranking.options[0] if ranking.options else None
    months = [option for option in ranking.options if option.monthly]
    preset = PRESETS[ranking.goal]
    workload = f" {best.prediction.workload.words.capitalize()}" if best else ""
    chart = ranking_chart(ranking, (Words(_LINE), _front(ranking)))
    sections = [
        *choices_sections(
            choices,
            "Choices",
            months[0].monthly if months else None,
            best.prediction if best else None,
            discount=discount,
            about=f"{preset.title}: {preset.summary}.{workload}; each token within "
            f"{limit_words(ranking)}",
        )
    ]
    if chart:
        price = Section(key="chart", title="Price against speed", parts=(chart,), medium="page")
        sections.append(price)
    return Report(
        kind="Instances, ranked",
        title=f"Instances for {model}",
        origin=origin_words(trace, ranking.model.ref if ranking.model else None),
        verdict=_month_sentence(ranking) + closing_sentence(ranking),
        sections=(
            *sections,
            *ranking_sections(ranking),
            *_instances(ranking),
            *trace_sections(trace),
        ),
        footer=FOOTER,
        packager=trace.packager if trace else "",
        is_wide=True,
    )


def _month_sentence(ranking: Ranking) -> str:
    """Return the machine with the lowest bill at the stated load; "" where no price is known."""
    best = lowest_bill_of(ranking.options)
    if best is None or best.monthly is None:
        return ""
    month = best.monthly
    several = counted(month.most_machines, "machine")
    return (
        f"For {month.requests_per_day:,} requests a day the lowest bill is "
        f"{best.plan.instance.name}'s, {month_words(month)} a month, at most {several}. "
    )


def _by_bill(options: Iterable[RankedInstance]) -> list[RankedInstance]:
    """Order machines by their bill at the stated load; those too slow and without one come last."""
    return sorted(
        options,
        key=lambda one: (not one.in_time, one.monthly.usd if one.monthly else float("inf")),
    )


def _instances(ranking: Ranking) -> Iterator[Section]:
    options = _by_bill(ranking.options) if ranking.goal == "cost" else ranking.options
    rows = [_row(option, "best" * (at == 0)) for at, option in enumerate(options)]
    rows += map(_left_out, ranking.skipped)
    if not rows:
        return
    first = "Lowest bill a month" if ranking.goal == "cost" else "Best"
    columns = _COLUMNS
    if len({row.cells[1] for row in rows if row.cells[1]}) < 2:  # all are of one provider
        columns = (*columns[:1], *columns[2:])
        rows = [Row((*row.cells[:1], *row.cells[2:]), tone=row.tone) for row in rows]
    yield Section(
        key="instances",
        title=f"{len(ranking.options)} of {len(rows)} instances can serve it",
        parts=(
            Table(
                columns=columns,
                rows=tuple(rows),
                title="instances",
                caption=f"{first} first, then those that cannot serve it, with the reason",
                is_sorted=True,
            ),
            Words(_READING),
        ),
        medium="page",
    )


def _front(ranking: Ranking) -> Table:
    rows = (
        Row(
            (
                option.plan.instance.name,
                usd(option.prices.output),
                f"{option.point.output_tokens_s_user:,.0f}",
            )
        )
        for option in reversed(pareto(ranking.options))
        if option.prices
    )
    return Table(
        columns=(Column("instance"), *number_columns("$/1M out", "tokens/s, one reader")),
        rows=tuple(rows),
        caption="What no other beats in both",
    )


def _row(option: RankedInstance, tone: str) -> Row:
    cells, month = option_cells(option), option.monthly
    return Row(
        (
            cells.instance,
            *_machine(option.plan.instance),
            usd(option.plan.usd_hour) if option.plan.usd_hour else "–",
            month_words(month).replace("$", "").replace(" to ", "–") if month else "–",
            f"{month.machines:,}" if month else "–",
            *(cells.output, cells.rate, cells.tpot.replace(" ms", ""), cells.requests),
            *(f"±{cells.band}", cells.precision, cells.tp, cells.options or "as asked"),
        ),
        tone=tone,
    )


def _left_out(skipped: SkippedInstance) -> Row:
    price = skipped.machine.price_usd_hour if skipped.machine else None
    reason = skipped.reason.replace(skipped.instance, "it")
    cells = (skipped.instance, *_machine(skipped.machine), usd(price) if price else "–", reason)
    return Row(cells, tone="none" if skipped.fits else "none no")


def _machine(machine: Instance | None) -> tuple[str, str]:
    """Return the provider and the devices of a machine."""
    if machine is None:
        return "", ""
    provider = CLOUDS.get(machine.cloud or "", "own row")
    return provider, f"{machine.devices} x {machine.device_name}"

"""Instances ranked for a model, for people and programs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from packager.core.reports.report import (
    Chart,
    Dot,
    Lines,
    Part,
    Row,
    Section,
    Series,
    Table,
    Words,
    word_columns,
)
from packager.core.units import percent, usd
from packager.estimate.performance.monthly import monthly_document, monthly_sentence
from packager.estimate.performance.predict import running_copies
from packager.estimate.performance.presets import PRESETS, Goal
from packager.estimate.performance.ranking import RankedInstance, Ranking, SkippedInstance, pareto
from packager.estimate.performance.report_outlook import point_document

Menu = tuple[tuple[Goal, RankedInstance], ...]

MENU_HEADER = ("goal", "with", "weights", "requests", "per token", "tokens/s", "$/1M out")

MOST_ROWS = 20  # in a terminal; JSON and HTML have all


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionCells:
    """A row of the table."""

    instance: str
    devices: str
    precision: str
    tp: str
    requests: str
    tpot: str
    rate: str
    output: str
    hour: str
    band: str
    options: str  # of the command line, beyond the request's own
    in_time: bool


def ranking_document(ranking: Ranking) -> dict[str, Any]:
    """The ranking as JSON."""
    front = pareto(ranking.options)
    return {
        "goal": ranking.goal,
        "tpot_limit_s": ranking.tpot_limit_s,
        "ttft_limit_s": ranking.ttft_limit_s,
        "summary": closing_sentence(ranking),
        "options": [
            {
                "instance": option.plan.instance.name,
                "options": option.candidate.options,
                "precision": option.plan.precision,
                "tp_degree": option.plan.tp_degree,
                "replicas": running_copies(option.plan),
                "container": option.plan.container.family,
                "usd_hour": option.plan.usd_hour,
                "price_basis": option.plan.instance.price_basis,
                "workload": asdict(option.prediction.workload),
                "error_band": option.prediction.band,
                "bands": asdict(option.prediction.bands) if option.prediction.bands else None,
                "assumptions": list(option.prediction.assumptions),
                "in_time": option.in_time,
                "buildable": True,  # of everything that is ranked; programs may read it
                "pareto": option in front,
                "point": point_document(option.prediction, option.point),
                "usd_per_million": asdict(option.prices) if option.prices else None,
                "monthly": monthly_document(option.monthly),
            }
            for option in ranking.options
        ],
        "skipped": [
            {"instance": skipped.instance, "reason": skipped.reason, "fits": skipped.fits}
            for skipped in ranking.skipped
        ],
    }


def ranking_sections(ranking: Ranking) -> tuple[Section, ...]:
    """Return the ranking for a terminal: a table, a chart, what was left out, and the outcome."""
    parts: list[Part] = []
    if ranking.options:
        workload = ranking.options[0].prediction.workload
        asked = (
            workload.words
            if workload.texts
            else f"{workload.name}, {workload.input_tokens} tokens in and "
            f"{workload.output_tokens} out, each token within {limit_words(ranking)}"
        )
        lines = (f"{PRESETS[ranking.goal].title}: {PRESETS[ranking.goal].summary}", asked, "")
        rows = tuple(Row(_row(option)) for option in ranking.options[:MOST_ROWS])
        parts += [Lines(lines), Table(columns=word_columns(*_HEADER), rows=rows)]
        more = len(ranking.options) - MOST_ROWS
        if more > 0:
            all_ = f"and {more} more: --format json and --format html have all of them"
            parts.append(Lines((all_,)))
        if chart := ranking_chart(ranking):
            parts.append(replace(chart, medium="text"))
    left_out = (
        (Words(", ".join(names), label="left out"), Words(reason))
        for reason, names in skipped_groups(ranking.skipped)
    )
    blocks: list[tuple[Part, ...]] = [tuple(parts), *left_out]
    if month := lowest_month(ranking):
        blocks.append((Words(month, label="a month"),))
    blocks.append((Lines((closing_sentence(ranking),)),))
    return tuple(Section(parts=block, medium="text") for block in blocks)


def lowest_month(ranking: Ranking) -> str:
    """Write the lowest monthly bill at the stated load; "" without prices."""
    found = [(one.monthly, one) for one in ranking.options if one.monthly and one.in_time]
    if not found:
        return ""
    cost, option = min(found, key=lambda pair: pair[0].usd)
    with_options = f" with {option.candidate.options}" if option.candidate.options else ""
    where = f"the lowest bill is on {option.plan.instance.name}{with_options}"
    return f"{where}: {monthly_sentence(cost, option.prediction)}"


def menu_document(menu: Menu) -> list[dict[str, Any]]:
    """The menu as JSON."""
    return [
        {
            "goal": goal,
            "options": option.candidate.options,
            "precision": option.plan.precision,
            "streams": streams_of(option),
            "tp_degree": option.plan.tp_degree,
            "buildable": True,  # of everything that is ranked; programs may read it
            "point": point_document(option.prediction, option.point),
            "usd_per_million": asdict(option.prices) if option.prices else None,
            "monthly": monthly_document(option.monthly),
        }
        for goal, option in menu
    ]


def menu_section(menu: Menu) -> Section:
    """Return the configurations of one instance, one line for each goal."""
    rows = tuple(Row(menu_cells(goal, option)) for goal, option in menu)
    table = Table(columns=word_columns(*MENU_HEADER), rows=rows, indent=2)
    parts: tuple[Part, ...] = (table, *_quantizing_words(menu)) if rows else ()
    return Section(parts=parts, heading="to try", medium="text")


def _quantizing_words(menu: Menu) -> Iterator[Words]:
    """Yield which of the methods calibrate with texts, and which need no tool at all."""
    streams_by_method = {
        str(option.candidate.changes["quantize"]): streams_of(option)
        for _, option in menu
        if "quantize" in option.candidate.changes
    }
    if streamed := [method for method, streams in streams_by_method.items() if streams]:
        yield Words(text=f"{', '.join(streamed)}: rounded while the weights are read, by no tool")
    if others := [method for method, streams in streams_by_method.items() if not streams]:
        yield Words(text=f"{', '.join(others)}: calibrated with texts, by a tool")


def streams_of(option: RankedInstance) -> bool:
    """Return whether its weights are quantized while they are read."""
    return any(one.code == "quantize-streams" for one in option.plan.findings)


def menu_cells(goal: Goal, option: RankedInstance) -> tuple[str, ...]:
    """Return the cells of one line of the menu."""
    cells = option_cells(option)
    return (
        PRESETS[goal].title,
        cells.options or "as asked",
        cells.precision,
        cells.requests,
        cells.tpot,
        cells.rate,
        cells.output,
    )


def closing_sentence(ranking: Ranking) -> str:
    """Return the outcome in one sentence."""
    if not ranking.options:
        return f"None of {len(ranking.skipped)} instances can serve the model as requested."
    best = ranking.options[0]
    point = best.point
    name = best.plan.instance.name
    with_options = f" with {best.candidate.options}" if best.candidate.options else ""
    by_price = "Best price-performance is" if best.prices else "No price is known. Most tokens from"
    sentence = {
        "cost": f"{by_price} {name}{with_options}",
        "latency": f"Fastest for one reader is {name}{with_options}",
        "throughput": f"Most tokens come from {name}{with_options}",
    }[ranking.goal]
    price = f", ${usd(best.prices.output)} per million tokens out" if best.prices else ""
    sentence += (
        f": {point.output_tokens_s:,.0f} tokens/s at {point.concurrency} "
        f"{'request' if point.concurrency == 1 else 'requests'}, "
        f"{point.tpot_s * 1e3:.3g} ms per token{price} (±{percent(best.prediction.widest)})"
    )
    others = [option for option in ranking.options[1:] if option.prices]
    if ranking.goal == "cost" and best.prices and others and others[0].prices:
        cheaper = 1 - best.prices.output / others[0].prices.output
        sentence += f"; {percent(cheaper)} below the next, {others[0].plan.instance.name}"
    return f"{sentence}."


def option_cells(option: RankedInstance) -> OptionCells:
    """Write an option's values."""
    plan, point = option.plan, option.point
    hour = plan.usd_hour
    return OptionCells(
        instance=plan.instance.name,
        devices=f"{plan.instance.devices} x {plan.instance.device_name}",
        precision=option.plan.precision,
        tp=f"{plan.tp_degree} x {running_copies(plan)}",
        requests=str(point.concurrency),
        tpot=f"{point.tpot_s * 1e3:,.1f} ms" + ("" if option.in_time else " !"),
        rate=f"{point.output_tokens_s:,.0f}",
        output=usd(option.prices.output) if option.prices else "–",
        hour=f"{hour:g}" if hour else "–",
        band=percent(option.prediction.widest),
        options=option.candidate.options,
        in_time=option.in_time,
    )


def ranking_chart(ranking: Ranking, beside: tuple[Part, ...] = ()) -> Chart | None:
    """Draw price against speed; None without prices. What no other beats in both is joined."""
    priced = [(option, option.prices) for option in ranking.options if option.prices]
    if not priced:
        return None
    front, best = pareto(ranking.options), ranking.options[0]
    joined, alone, beaten = list[Dot](), list[Dot](), list[Dot]()
    for option, prices in priced:
        speed, name = option.point.output_tokens_s_user, option.plan.instance.name
        is_clear = option in front or option is best
        series = joined if option in front else alone if option is best else beaten
        series.append(
            Dot(
                x=speed,
                y=prices.output,
                label=name.removeprefix("ml.") if is_clear else "",
                title=f"{name}: {speed:,.0f} tokens/s for one reader, ${usd(prices.output)} per "
                "million out",
                ringed=option is best,
            )
        )
    joined.sort(key=lambda dot: (dot.x, dot.y))
    return Chart(
        series=(
            Series(number=0, name="", dots=tuple(beaten), joined=False, is_faint=True),
            Series(number=0, name="", dots=tuple(joined)),
            Series(number=0, name="", dots=tuple(alone), joined=False),
        ),
        x_label="tokens/s for one reader",
        y_label="$ per million tokens out",
        name="Price per million tokens out against tokens per second for one reader, by instance",
        table="the table of instances",
        beside=beside,
        caption="price and speed (* best, o not beaten in both, . beaten)",
    )


def skipped_groups(skipped: Iterable[SkippedInstance]) -> list[tuple[str, list[str]]]:
    """Group instances with the same reason."""
    groups: dict[str, list[str]] = {}
    for found in skipped:
        reason = found.reason.replace(found.instance, "it")
        groups.setdefault(reason, []).append(found.instance)
    return list(groups.items())


_HEADER = (
    "instance",
    "devices",
    "weights",
    "tp x copies",
    "requests",
    "per token",
    "tokens/s",
    "$/1M out",
    "$/h",
    "band",
    "with",
)


def limit_words(ranking: Ranking) -> str:
    """Return the time of each token that is demanded, and of the first where that is."""
    words = f"{ranking.tpot_limit_s * 1e3:,.0f} ms"
    if ranking.ttft_limit_s is None:
        return words
    return f"{words}, the first within {ranking.ttft_limit_s * 1e3:,.0f} ms"


def _row(option: RankedInstance) -> tuple[str, ...]:
    cells = option_cells(option)
    return (
        cells.instance,
        cells.devices,
        cells.precision,
        cells.tp,
        cells.requests,
        cells.tpot,
        cells.rate,
        cells.output,
        cells.hour,
        f"±{cells.band}",
        cells.options or "as asked",
    )

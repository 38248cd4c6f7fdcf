"""Report of a plan's predicted speed by concurrency and token prices, with bands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from packager.core.plan import Plan
from packager.core.reports.report import (
    Chart,
    Column,
    Details,
    Dot,
    Lines,
    Pair,
    Pairs,
    Row,
    Section,
    Series,
    Table,
    Words,
    number_columns,
)
from packager.core.units import percent, usd
from packager.estimate.performance.monthly import (
    MonthlyCost,
    monthly_cost,
    monthly_document,
)
from packager.estimate.performance.predict import Point, Prediction
from packager.estimate.performance.presets import REQUESTS_PER_DAY, TPOT_LIMIT_S
from packager.estimate.performance.pricing import (
    LABELS,
    Formula,
    TokenPrices,
    blended_price,
    make_prices,
    tokens_s_by_gap,
    tokens_s_by_latency,
)

ONE_READER = "tokens per second for one reader"
# The meaning of each formula for a buyer.
MEANINGS: Mapping[Formula, str] = {
    "F1": "as if prompts took no time; the lowest figure, seen in announcements",
    "F2": "what one client sees, its waiting included; seen in announcements",
    "F3": "what the bill divided by the tokens gives; the one to budget with",
}
_TEXTS_BAND = (
    "computed from what prompts of models that write text take on the device: no server of vectors "
    "or scores was measured; `packager bench` measures this one"
)
_COLUMNS = (
    *number_columns("requests"),
    Column("first token", is_number=True, unit="ms"),
    Column("per token", is_number=True, unit="ms"),
    *number_columns("tokens/s", "per user"),
)
_PRICES = (
    Column("$/1M in", is_number=True, medium="page"),
    *number_columns("$/1M out", "$/1M all", "F1", "F2", "F3"),
)
_READING = (
    "More requests at once make the instance cheaper per token and each reader's answer slower. "
    "Each point is a number of requests at once; the last one that fits is ringed."
)
_QUEUE = "the time to first token counts the queue behind the other requests"
_NEVER_ADD = (
    "the prices of input and output each charge the whole instance to one stream of tokens: take "
    "one of them, or the price of both together, and never add them"
)
_COMPARE = (
    "announcements divide the price of an hour by tokens that they count in different ways. F1 to "
    "F3 are for three tokens in to one out, with the tokens in for free; compare a figure only "
    "with one of the same formula. This page uses F3 everywhere else"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PricedPoint:
    """A predicted point with its prices: F3 in full, the older formulas blended only."""

    point: Point
    prices: TokenPrices | None  # None: nobody published what the instance costs
    blended_f1: float = 0.0
    blended_f2: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """A prediction, priced."""

    prediction: Prediction
    points: tuple[PricedPoint, ...]
    discount: float = 0.0
    monthly: MonthlyCost | None = None  # None: nobody published what the instance costs


def make_outlook(
    plan: Plan,
    prediction: Prediction,
    *,
    discount: float = 0.0,
    requests_per_day: int = REQUESTS_PER_DAY,
    tpot_limit_s: float = TPOT_LIMIT_S,
) -> Outlook:
    """Return the prediction with prices for every point, and of a month at the load."""
    points = tuple(_priced(plan, prediction, point, discount) for point in prediction.points)
    monthly = monthly_cost(
        plan, prediction, requests_per_day, tpot_limit_s=tpot_limit_s, discount=discount
    )
    return Outlook(prediction=prediction, points=points, discount=discount, monthly=monthly)


def outlook_document(outlook: Outlook) -> dict[str, Any]:
    """The outlook as JSON."""
    prediction = outlook.prediction
    return {
        "workload": asdict(prediction.workload),
        "error_band": prediction.band,
        "bands": asdict(prediction.bands) if prediction.bands else None,
        "assumptions": list(prediction.assumptions),
        "fit": asdict(prediction.fit) if prediction.fit else None,
        "discount": outlook.discount,
        "monthly": monthly_document(outlook.monthly),
        "formulas": dict(LABELS),
        "points": [
            {
                **point_document(prediction, priced.point),
                "output_tokens_s_user": priced.point.output_tokens_s_user,
                "tpot_band": prediction.band_at(priced.point.concurrency),
                "usd_per_million": _prices_document(priced),
            }
            for priced in outlook.points
        ],
    }


def outlook_section(outlook: Outlook) -> Section:
    """Return the outlook as a table and a chart, with what it rests on."""
    prediction, priced = outlook.prediction, outlook.points[0].prices is not None
    if prediction.workload.texts:
        return _texts_section(outlook)
    workload = prediction.workload
    source = f"; {workload.source}" if workload.source else ""
    table = Table(
        title="Predicted by requests at once",
        caption="Predicted by requests at once"
        + ("; prices in US dollars per million tokens" if priced else ""),
        columns=(*_COLUMNS, *(_PRICES if priced else ())),
        rows=tuple(Row(_cells(one, prediction)) for one in outlook.points),
        is_right=True,
        indent=2,
    )
    text = [Words(workload.words, "text", label="predicted")]
    text += [Words(workload.source, "text")] if workload.source else []
    return Section(
        key="speed",
        title="Why this speed and price" if priced else "Why this speed",
        parts=(
            *text,
            _chart(outlook, f"For {workload.words}{source}. {_READING}"),
            replace(table, title="", medium="text"),
            replace(table, medium="page"),
            Details(
                "How to read these figures, and how far off they may be",
                (
                    *map(Words, band_sentences(prediction)),
                    *(_formulas() if priced else ()),
                    *map(Words, prediction.assumptions),
                    Words(_QUEUE, "page"),
                    *((Words(_NEVER_ADD, "page"),) if priced else ()),
                ),
            ),
        ),
    )


def _texts_section(outlook: Outlook) -> Section:
    """Return the outlook of a model that gives vectors or scores: requests, texts, tokens in."""
    prediction, priced = outlook.prediction, outlook.points[0].prices is not None
    rows = []
    for one in outlook.points:
        point, prices = one.point, one.prices
        cells = [str(point.concurrency), f"{point.latency_s * 1e3:,.1f}"]
        cells.append(f"{point.output_tokens_s / prediction.workload.texts:,.1f}")
        cells += [f"{point.output_tokens_s:,.0f}", f"{point.input_tokens_s:,.0f}"]
        cells += [usd(prices.input), usd(prices.output)] if prices else []
        rows.append(Row(tuple(cells)))
    columns = (
        *number_columns("requests"),
        Column("latency", is_number=True, unit="ms"),
        *number_columns("requests/s", "texts/s", "tokens in/s"),
        *(number_columns("$/1M in", "$/1M texts") if priced else ()),
    )
    table = Table(columns=columns, rows=tuple(rows), is_right=True, indent=2)
    return Section(
        key="speed",
        title="Why this speed and price" if priced else "Why this speed",
        parts=(
            Words(prediction.workload.words, "text", label="predicted"),
            table,
            Details(
                "How far off they may be",
                (Words(_TEXTS_BAND), *map(Words, prediction.assumptions)),
            ),
        ),
    )


def _chart(outlook: Outlook, reading: str) -> Chart:
    last = outlook.points[-1]
    dots = tuple(
        Dot(
            x=one.point.output_tokens_s_user,
            y=one.point.output_tokens_s,
            label=f"{one.point.concurrency:,}",
            title=f"{one.point.concurrency:,} requests: {one.point.output_tokens_s:,.0f} tokens/s, "
            f"{one.point.tpot_s * 1e3:.1f} ms per token"
            + (f", ${usd(one.prices.output)} per million out" if one.prices else ""),
            ringed=one is last,
        )
        for one in outlook.points
    )
    return Chart(
        series=(Series(number=0, name="", dots=dots),),
        x_label=ONE_READER,
        y_label="tokens per second, all together",
        name="Tokens per second of the instance against those of one reader, by requests at once",
        table="the table below",
        beside=(Words(reading),),
    )


def _formulas() -> tuple[Lines | Words | Pairs, ...]:
    """Return what F1 to F3 are, briefly in text."""
    brief: tuple[str, ...] = (
        "           F1 to F3: blended price, 3 tokens in to 1 out; F3 is the default",
    )
    brief += tuple(f"             {name}  {label}" for name, label in LABELS.items())
    meanings = (Pair(name, f"{label}: {MEANINGS[name]}") for name, label in LABELS.items())
    return Lines(brief), Words(_COMPARE, "page"), Pairs(tuple(meanings), "page")


def band_sentences(prediction: Prediction) -> list[str]:
    """Describe how far off each figure may be, and what that rests on."""
    bands, per_token = prediction.bands, percent(prediction.band)
    if bands is None:
        return [f"every figure ±{per_token}"]
    words = f"per token ±{per_token}, tokens/s and prices ±{percent(bands.throughput.share)}"
    if bands.ttft is None:
        words += "; nothing is promised of the time to first token"
    elif bands.ttft.share <= 1:
        words += f", first token ±{percent(bands.ttft.share)}"
    else:
        words += f", first token up to {1 + bands.ttft.share:.1f} times as long"
    return [words, bands.throughput.source if prediction.fit else f"within it: {bands.tpot.source}"]


def first_token_words(prediction: Prediction, point: Point) -> str:
    """Write the ms to first token with its queue; a dash where they must not be shown."""
    return f"{point.ttft_s * 1e3:,.0f}" if shows_first_token(prediction) else "–"


def point_document(prediction: Prediction, point: Point) -> dict[str, Any]:
    """The point as JSON; the time to first token is null where it must not be shown."""
    shown = point.ttft_s if shows_first_token(prediction) else None
    return {**asdict(point), "ttft_s": shown}


def shows_first_token(prediction: Prediction) -> bool:
    """Return whether the time to first token has a band, without which it is not shown."""
    return prediction.bands is not None and prediction.bands.ttft is not None


def _priced(plan: Plan, prediction: Prediction, point: Point, discount: float) -> PricedPoint:
    usd_hour, workload = plan.usd_hour, prediction.workload
    if usd_hour is None:
        return PricedPoint(point=point, prices=None)
    by_gap = tokens_s_by_gap(point.concurrency, point.tpot_s)
    by_latency = tokens_s_by_latency(point.concurrency, workload.yields, point.latency_s)
    return PricedPoint(
        point=point,
        prices=make_prices(
            usd_hour,
            formula="F3",
            output_tokens_s=point.output_tokens_s,
            input_per_output=workload.request_tokens / workload.yields,
            discount=discount,
        ),
        blended_f1=blended_price(usd_hour, by_gap, discount=discount),
        blended_f2=blended_price(usd_hour, by_latency, discount=discount),
    )


def _cells(priced: PricedPoint, prediction: Prediction) -> tuple[str, ...]:
    point, prices = priced.point, priced.prices
    cells = [
        str(point.concurrency),
        first_token_words(prediction, point),
        f"{point.tpot_s * 1e3:,.1f}",
        f"{point.output_tokens_s:,.0f}",
        f"{point.output_tokens_s_user:,.0f}",
    ]
    if prices:
        amounts = (prices.input, prices.output, prices.total, priced.blended_f1, priced.blended_f2)
        cells += [usd(amount) for amount in (*amounts, prices.blended)]
    return tuple(cells)


def _prices_document(priced: PricedPoint) -> dict[str, Any] | None:
    if priced.prices is None:
        return None
    return {
        "F1": {"blended": priced.blended_f1},
        "F2": {"blended": priced.blended_f2},
        "F3": asdict(priced.prices),
    }

"""Report of a plan's predicted speed by concurrency and token prices, with bands."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from packager.core.plan import Plan
from packager.core.reports.text import right_table_lines, wrapped
from packager.core.units import percent, usd
from packager.core.values import dataclass
from packager.estimate.performance.monthly import (
    REQUESTS_PER_DAY,
    MonthlyCost,
    monthly_cost,
    monthly_document,
)
from packager.estimate.performance.predict import Point, Prediction
from packager.estimate.performance.presets import TPOT_LIMIT_S
from packager.estimate.performance.pricing import (
    LABELS,
    TokenPrices,
    blended_price,
    make_prices,
    tokens_s_by_gap,
    tokens_s_by_latency,
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


def outlook_lines(outlook: Outlook) -> list[str]:
    """The outlook as a table, with what it rests on."""
    prediction = outlook.prediction
    workload = prediction.workload
    lines = [f"predicted  {workload.words}"]
    lines += wrapped("", workload.source) if workload.source else []
    header = ["requests", "first token", "per token", "tokens/s", "per user"]
    if outlook.points[0].prices:
        header += ["$/1M out", "$/1M all", "F1", "F2", "F3"]
    lines += right_table_lines(header, [_cells(priced, prediction) for priced in outlook.points])
    lines += [line for words in band_sentences(prediction) for line in wrapped("", words)]
    if outlook.points[0].prices:
        lines.append("           F1 to F3: blended price, 3 tokens in to 1 out; F3 is the default")
        lines += [f"             {name}  {label}" for name, label in LABELS.items()]
    return lines + [f"           {words}" for words in prediction.assumptions]


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
    """Write the time to first token with its queue; a dash where it must not be shown."""
    return f"{point.ttft_s * 1e3:,.0f} ms" if shows_first_token(prediction) else "–"


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
    by_latency = tokens_s_by_latency(point.concurrency, workload.output_tokens, point.latency_s)
    return PricedPoint(
        point=point,
        prices=make_prices(
            usd_hour,
            formula="F3",
            output_tokens_s=point.output_tokens_s,
            input_per_output=workload.input_tokens / workload.output_tokens,
            discount=discount,
        ),
        blended_f1=blended_price(usd_hour, by_gap, discount=discount),
        blended_f2=blended_price(usd_hour, by_latency, discount=discount),
    )


def _cells(priced: PricedPoint, prediction: Prediction) -> list[str]:
    point, prices = priced.point, priced.prices
    cells = [
        str(point.concurrency),
        first_token_words(prediction, point),
        f"{point.tpot_s * 1e3:,.1f} ms",
        f"{point.output_tokens_s:,.0f}",
        f"{point.output_tokens_s_user:,.0f}",
    ]
    if prices:
        amounts = (prices.output, prices.total, priced.blended_f1, priced.blended_f2)
        cells += [usd(amount) for amount in (*amounts, prices.blended)]
    return cells


def _prices_document(priced: PricedPoint) -> dict[str, Any] | None:
    if priced.prices is None:
        return None
    return {
        "F1": {"blended": priced.blended_f1},
        "F2": {"blended": priced.blended_f2},
        "F3": asdict(priced.prices),
    }

"""Report of another predictor's figures, beside our own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from packager.core.reports.report import Part, Row, Section, Table, Words, number_columns
from packager.estimate.performance.opinion import Opinion, OpinionPoint
from packager.estimate.performance.predict import Point, Prediction
from packager.estimate.performance.report_outlook import shows_first_token

COLUMNS = number_columns(
    *("requests", "per token", "ours", "ratio", "first token", "ours", "ratio"),
    *("tokens/s", "ours", "ratio"),
)
RATIOS = "a ratio is its figure over ours; the plan and its prices rest on ours alone"


def opinion_document(opinion: Opinion, prediction: Prediction | None) -> dict[str, Any]:
    """Return the opinion as JSON, each of its figures with its ratio to ours."""
    ours = _by_concurrency(prediction)
    return {
        **asdict(opinion),
        "points": [
            {**asdict(point), "ratios": _ratios(point, ours.get(point.concurrency))}
            for point in opinion.points
        ],
    }


def opinion_section(opinion: Opinion, prediction: Prediction | None) -> Section:
    """Return the opinion as a table, or why there is none."""
    sentence = opinion_sentence(opinion)
    parts: tuple[Part, ...] = (Words(sentence, label="opinion"),)
    if opinion.points:
        rows = tuple(map(Row, opinion_rows(opinion, prediction)))
        table = Table(columns=COLUMNS, rows=rows, is_right=True, indent=2, caption=RATIOS)
        parts += (table, *map(Words, unanswered(opinion)), Words(RATIOS, "text"))
    return Section(key="opinion", title="Second opinion", parts=parts)


def opinion_sentence(opinion: Opinion) -> str:
    """Describe the tool and what its answer rests on."""
    if opinion.reason:
        return f"{opinion.source} has none: {opinion.reason}"
    return f"{opinion.source}, from its tables of {opinion.engine}; {opinion.formats}"


def opinion_rows(opinion: Opinion, prediction: Prediction | None) -> list[tuple[str, ...]]:
    """Return a row for each concurrency that was answered."""
    ours = _by_concurrency(prediction)
    rows: list[tuple[str, ...]] = []
    for point in opinion.points:
        if point.tpot_s is None:
            continue
        own = ours.get(point.concurrency)
        ratios = _ratios(point, own)
        rows.append(
            (
                str(point.concurrency),
                *(_ms(point.tpot_s), _ms(own.tpot_s if own else None), _times(ratios["tpot"])),
                *(_ms(point.ttft_s), _ms(own.ttft_s if own else None), _times(ratios["ttft"])),
                _rate(point.output_tokens_s),
                _rate(own.output_tokens_s if own else None),
                _times(ratios["output_tokens_s"]),
            )
        )
    return rows


def unanswered(opinion: Opinion) -> list[str]:
    """Describe the concurrencies that have no figures, and why."""
    reasons: dict[str, list[str]] = {}
    for point in opinion.points:
        if point.tpot_s is None:
            reasons.setdefault(point.reason, []).append(str(point.concurrency))
    return [f"at {', '.join(places)}: {reason}" for reason, places in reasons.items()]


def _by_concurrency(prediction: Prediction | None) -> Mapping[int, Point]:
    """Return our points; a time to first token without a band is none."""
    if prediction is None:
        return {}
    shown = shows_first_token(prediction)
    return {
        point.concurrency: replace(point, ttft_s=point.ttft_s if shown else 0.0)
        for point in prediction.points
    }


def _ratios(point: OpinionPoint, own: Point | None) -> dict[str, float | None]:
    return {
        "tpot": _ratio(point.tpot_s, own.tpot_s if own else None),
        "ttft": _ratio(point.ttft_s, own.ttft_s if own else None),
        "output_tokens_s": _ratio(point.output_tokens_s, own.output_tokens_s if own else None),
    }


def _ratio(theirs: float | None, ours: float | None) -> float | None:
    return theirs / ours if theirs and ours else None


def _ms(seconds: float | None) -> str:
    return f"{seconds * 1e3:,.1f} ms" if seconds else "-"


def _rate(value: float | None) -> str:
    return f"{value:,.0f}" if value else "-"


def _times(ratio: float | None) -> str:
    return f"{ratio:.2f}x" if ratio else "-"

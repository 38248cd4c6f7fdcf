"""Figures of any load are those of a slow reference that numpy computes."""

from __future__ import annotations

from typing import Any

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from packager.addons.bench.load.values import Chunk, Level, LoadResult, LoadRun
from packager.addons.bench.metrics import load_figures
from packager.addons.bench.statistics import PERCENTILES
from packager.core.bench import Limits

LIMITS = Limits(ttft_ms=300, latency_ms=2000)
FAILURES = [None, None, None, None, "status", "cut", "cancelled"]
seconds = st.integers(0, 3_000_000).map(lambda micros: micros / 1e6)
counts = st.none() | st.integers(0, 200)


@st.composite
def results(draw: st.DrawFn) -> LoadResult:
    sent = draw(seconds)
    gaps = draw(st.lists(seconds, max_size=6))
    at = [sent + float(moment) for moment in numpy.cumsum(gaps)]
    is_streamed = draw(st.booleans())
    return LoadResult(
        number=0,
        sent_s=sent,
        ended_s=(at[-1] if at else sent) + draw(seconds),
        chunks=tuple(Chunk(at_s=moment, is_reasoning=draw(st.booleans())) for moment in at)
        if is_streamed
        else (),
        is_streamed=is_streamed,
        text="x" * len(at),
        input_tokens=draw(counts),
        output_tokens=draw(counts),
        own_input_tokens=draw(counts),
        own_output_tokens=draw(counts),
        asked_tokens=draw(st.none() | st.integers(1, 200)),
        failure=draw(st.sampled_from(FAILURES)),
    )


def moments_of(one: LoadResult) -> list[float]:
    return [chunk.at_s for chunk in one.chunks] or [one.ended_s]


def row_of(one: LoadResult) -> dict[str, list[float]]:
    """Return the values of each metric that one answer has."""
    moments = numpy.array(moments_of(one))
    osl = one.output_tokens if one.output_tokens is not None else one.own_output_tokens
    isl = one.input_tokens if one.input_tokens is not None else one.own_input_tokens
    row: dict[str, Any] = {"request_latency": (moments[-1] - one.sent_s) * 1000}
    if one.is_streamed:
        row["time_to_first_token"] = (moments[0] - one.sent_s) * 1000
        row["decode_duration"] = (moments[-1] - moments[0]) * 1000
        row["inter_chunk_latency"] = list(numpy.diff(moments) * 1000)
        if osl is not None and osl >= 2 and len(moments) >= 2:
            row["inter_token_latency"] = row["decode_duration"] / (osl - 1)
    row |= {} if osl is None else {"output_sequence_length": osl}
    row |= {} if isl is None else {"input_sequence_length": isl}
    return {tag: value if isinstance(value, list) else [value] for tag, value in row.items()}


def reference(found: list[LoadResult]) -> dict[str, Any]:
    """Return the values of every metric of requests, and of those of a load the value."""
    sent = [one for one in found if one.failure != "cancelled"]
    valid = [one for one in sent if one.failure is None and one.text]
    rows = [row_of(one) for one in valid]
    values: dict[str, list[float]] = {}
    for row in rows:
        for tag, more in row.items():
            values.setdefault(tag, []).extend(more)
    first = [row.get("time_to_first_token", [numpy.inf])[0] for row in rows]
    latency = [row["request_latency"][0] for row in rows]
    good = sum(at <= 300 and end <= 2000 for at, end in zip(first, latency, strict=True))
    whole = {
        "request_count": len(rows),
        "error_request_count": len(sent) - len(rows),
        "good_request_count": good,
    }
    duration = (
        max(moment for one in valid for moment in moments_of(one))
        - min(one.sent_s for one in valid)
        if valid
        else 0
    )
    if duration > 0:
        whole |= {"benchmark_duration": duration, "goodput": good / duration}
        whole["request_throughput"] = len(rows) / duration
        for side in ("output", "input"):
            if tokens := values.get(f"{side}_sequence_length"):
                whole[f"{side}_token_throughput"] = sum(tokens) / duration
    return {"values": {tag: found for tag, found in values.items() if found}, "whole": whole}


@settings(deadline=None, max_examples=60, derandomize=True)
@given(st.lists(results(), max_size=12))
def test_every_metric_is_the_references(found: list[LoadResult]) -> None:
    run = LoadRun(
        level=Level(concurrency=1),
        results=tuple(found),
        seconds=9.0,
        started="2026-11-23T10:00:00Z",
    )

    metrics = load_figures([run], LIMITS).metrics

    expected = reference(found)
    for tag, values in expected["values"].items():
        array = numpy.array(values, dtype=float)
        metric = metrics[tag]
        assert metric.count == len(values), tag
        told = [metric.avg, metric.std, metric.min, metric.max, metric.sum]
        told += [getattr(metric, f"p{percent}") for percent in PERCENTILES]
        ours = [array.mean(), array.std(), array.min(), array.max(), array.sum()]
        ours += list(numpy.percentile(array, PERCENTILES))
        assert told == pytest.approx(ours, rel=1e-6, abs=1e-5), tag
    for tag in ("time_to_first_token", "inter_token_latency", "inter_chunk_latency"):
        assert (tag in metrics) == (tag in expected["values"])
    for tag, value in expected["whole"].items():
        assert metrics[tag].avg == pytest.approx(value, rel=1e-6), tag

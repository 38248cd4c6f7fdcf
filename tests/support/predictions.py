"""Predictions made by hand."""

from __future__ import annotations

from packager.estimate.performance.predict import Point


def point(concurrency: int, **figures: float) -> Point:
    """Return a point of which only some figures matter."""
    given = {"prefill_s": 0.1, "tpot_s": 0.01, "latency_s": 1.0, "output_tokens_s": 100.0}
    told = {"input_tokens_s": 100.0, **given, **figures}
    return Point(concurrency=concurrency, **{"step_s": told["tpot_s"], **told})

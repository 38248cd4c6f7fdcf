"""Variants of a made benchmark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from packager.core.bench import BenchLoad, BenchVariant, Prices, Round
from tests.unit.addons.bench.loads import bench_load


def load(
    throughputs: Sequence[float],
    *,
    concurrency: int | None = 8,
    rate: float | None = None,
    ttft_ms: Sequence[float] = (),
    latency_ms: float = 1000.0,
    user_tokens_s: float = 50.0,
    usd_hour: float | None = None,
    failed: int = 0,
) -> BenchLoad:
    """Return a load with one round for each throughput."""
    mean = sum(throughputs) / len(throughputs)
    price = None
    if usd_hour is not None:
        price = Prices(usd_hour=usd_hour, output=usd_hour / (mean * 3600 / 1e6))
    metrics = {
        "output_token_throughput": mean,
        "output_token_throughput_per_user": user_tokens_s,
        "request_latency": latency_ms,
    }
    first = ttft_ms or [None] * len(throughputs)
    rounds = tuple(
        Round(seconds=20, requests=30, failed=0, output_token_throughput=one, ttft_p50_ms=ttft)
        for one, ttft in zip(throughputs, first, strict=True)
    )
    level = {"concurrency": concurrency, "rate": rate}
    return bench_load(metrics, failed=failed, rounds=rounds, prices=price, **level)


def variant(name: str, *loads: BenchLoad, **more: object) -> BenchVariant:
    return BenchVariant.model_validate({"name": name, "loads": loads, **more})


def variants_of(rows: Sequence[Mapping[str, Any]]) -> list[BenchVariant]:
    """Return variants as a corpus has them: their fields, and what `load` takes for each load."""
    made = [{**row, "loads": [load(**one) for one in row.get("loads", ())]} for row in rows]
    return [BenchVariant.model_validate(one) for one in made]

"""Variants of a made benchmark."""

from __future__ import annotations

from collections.abc import Sequence

from packager.core.bench import BenchError, BenchLoad, BenchVariant, Metric, Prices, Round


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
    return BenchLoad(
        concurrency=concurrency,
        rate=rate,
        requests=100,
        answered=100 - failed,
        seconds=60,
        metrics={
            "output_token_throughput": Metric(unit="tokens/sec", avg=mean),
            "output_token_throughput_per_user": Metric(unit="tokens/sec/user", avg=user_tokens_s),
            "request_latency": Metric(unit="ms", avg=latency_ms, p50=latency_ms),
        },
        errors=(BenchError(kind="cut", reason="no end", count=failed),) if failed else (),
        rounds=tuple(
            Round(
                seconds=20,
                requests=30,
                failed=0,
                output_token_throughput=throughput,
                ttft_p50_ms=ttft_ms[at] if ttft_ms else None,
            )
            for at, throughput in enumerate(throughputs)
        ),
        prices=price,
    )


def variant(name: str, *loads: BenchLoad, **more: object) -> BenchVariant:
    return BenchVariant.model_validate({"name": name, "loads": loads, **more})

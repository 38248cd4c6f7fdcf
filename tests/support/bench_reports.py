"""Reports of benchmarks that nobody ran: realistic figures by simple formulas, always the same."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from packager.addons.bench.compare import compare
from packager.addons.bench.pareto import pareto
from packager.core.bench import (
    BenchLoad,
    BenchReport,
    BenchVariant,
    BenchWorkload,
    ContainerUse,
    Metric,
    Predicted,
    Prices,
    Round,
)
from packager.core.bench_setup import BenchSetup
from packager.core.speculation import Acceptance
from tests.support.places import DATA
from tests.support.report_values import quality_report

INPUT, OUTPUT = 622.0, 250.0
LEVELS = (1, 2, 4, 8, 16, 32)
TABLE = tomllib.loads((DATA / "bench" / "reports.toml").read_text("utf-8"))
USUAL = tomllib.loads((DATA / "bench" / "usual.toml").read_text("utf-8"))


def metric(unit: str, p50: float, spread: float = 0.1) -> Metric:
    """Return a metric whose percentiles lie around its median."""
    return Metric(
        unit=unit,
        avg=round(p50 * (1 + spread / 5), 4),
        p50=round(p50, 4),
        p90=round(p50 * (1 + spread), 4),
        p95=round(p50 * (1 + 1.5 * spread), 4),
        p99=round(p50 * (1 + 3 * spread), 4),
        min=round(p50 * (1 - spread), 4),
        max=round(p50 * (1 + 4 * spread), 4),
        std=round(p50 * spread / 2, 4),
    )


def whole(unit: str, amount: float) -> Metric:
    return Metric(unit=unit, avg=round(amount, 4))


def prices(usd_hour: float, load_s: float, output_s: float, input_s: float) -> Prices:
    """Return the prices of a load by F1, F2 and F3."""

    def of(tokens_s: float) -> float:
        return round(usd_hour / (tokens_s * 3600 / 1e6), 6)

    return Prices(
        usd_hour=usd_hour,
        source="catalog: SageMaker, us-east-1, 2026-10-01",
        output=of(output_s),
        input=of(input_s),
        total=of(output_s + input_s),
        f1=of(load_s),
        f2=of(output_s * 1.01),
        blended=round(of(output_s) / 4, 6),
    )


def load(
    concurrency: int,
    *,
    tpot_ms: float,
    ttft_ms: float,
    chunk: float = 1.0,
    rounds: int = 3,
    usd_hour: float | None = 1.408,
    failed: int = 0,
    limits: bool = True,
    **changes: Any,
) -> BenchLoad:
    """Return a load; a step of the engine takes longer with more requests at once."""
    tpot = tpot_ms * (1 + 0.035 * concurrency)
    ttft = ttft_ms * (1 + 0.12 * concurrency)
    latency = ttft + (OUTPUT - 1) * tpot
    rate = concurrency / latency * 1e3
    requests = max(32, 4 * concurrency) * max(1, rounds)

    def wander(number: int) -> float:
        return 0.02 * math.sin(7 * number + 3 * tpot_ms + concurrency)

    given: dict[str, Any] = {
        "concurrency": concurrency,
        "requests": requests,
        "answered": requests - failed,
        "seconds": round(requests / rate, 3),
        "metrics": {
            "time_to_first_token": metric("ms", ttft, 0.3),
            "inter_token_latency": metric("ms", tpot, 0.04),
            "inter_chunk_latency": metric("ms", tpot * chunk, 0.08),
            "request_latency": metric("ms", latency, 0.05),
            "output_token_throughput": whole("tokens/sec", rate * OUTPUT),
            "request_throughput": whole("requests/sec", rate),
            "output_token_throughput_per_user": metric("tokens/sec/user", 1e3 / tpot, 0.03),
            "prefill_throughput_per_user": metric("tokens/sec/user", 1e3 * INPUT / ttft, 0.2),
            "input_sequence_length": metric("tokens", INPUT, 0.05),
            "output_sequence_length": metric("tokens", OUTPUT, 0.0),
        },
        "good": (1.0 if ttft < 500 and tpot < 30 else 0.62) if limits else None,
        "rounds": tuple(
            Round(
                seconds=round(requests / rate / rounds, 3),
                requests=requests // rounds,
                failed=0,
                output_token_throughput=round(rate * OUTPUT * (1 + wander(number)), 3),
                request_throughput=round(rate, 4),
                ttft_p50_ms=round(ttft * (1 - 2 * wander(number)), 3),
                tpot_p50_ms=round(tpot * (1 - wander(number)), 4),
                latency_p50_ms=round(latency, 2),
            )
            for number in range(rounds)
        ),
        "use": ContainerUse(peak_memory_bytes=9 * 2**30 + concurrency * 2**26, cpu_seconds=41.5),
        "prices": prices(usd_hour, concurrency / tpot * 1e3, rate * OUTPUT, rate * INPUT)
        if usd_hour
        else None,
    }
    return BenchLoad.model_validate(given | changes)


def acceptance(length: float) -> Acceptance:
    return Acceptance(
        source="vllm",
        length=length,
        rate=round((length - 1) / 3, 3),
        drafts=9000,
        draft_tokens=27_000,
        accepted_tokens=round(9000 * (length - 1)),
        by_position=(0.71, 0.44, 0.29),
    )


def variant(name: str, *, levels: tuple[int, ...] = LEVELS, **changes: Any) -> BenchVariant:
    """Return a variant; `setup` and settings of loads are told apart by their names."""
    kept = {"quality", "boundary", "start_s"} & set(changes)
    digest = "sha256:" + f"{sum(map(ord, name)):02x}"[-2:] * 32
    setup = USUAL["setup"] | {"digest": digest} | changes.pop("setup", {})
    top = {key: changes.pop(key) for key in kept}
    return BenchVariant(
        name=name,
        setup=BenchSetup(**setup),
        loads=tuple(load(level, **changes) for level in levels),
        **({"start_s": 74.2} | top),
    )


def report(variants: tuple[BenchVariant, ...], **changes: Any) -> BenchReport:
    """Return a report of variants that were all measured alike."""
    given = USUAL["report"] | {
        "workload": BenchWorkload(name="questions", input_tokens=INPUT, output_tokens=OUTPUT),
        "variants": variants,
        "compared": compare(variants),
        "pareto": pareto(variants),
    }
    return BenchReport.model_validate(given | changes)


def told_variant(row: Mapping[str, Any]) -> BenchVariant:
    """Make a variant of the table."""
    fields = with_null(row)
    fields["setup"] = with_null(row.get("setup", {}))
    if "accepted" in fields:
        fields["acceptance"] = acceptance(fields.pop("accepted"))
    if "quality" in fields:
        fields["quality"] = quality_report(**fields["quality"])
    predicted, rates = fields.pop("predicted", {}), fields.pop("rates", {})
    made = variant(fields.pop("name"), **fields)
    loads = []
    for one in made.loads:
        at = str(one.concurrency)
        told = {"predicted": Predicted(**predicted[at])} if at in predicted else {}
        loads.append(one.model_copy(update={**told, "rate": rates.get(at)}))
    return made.model_copy(update={"loads": tuple(loads)})


def with_null(row: Mapping[str, Any]) -> dict[str, Any]:
    given = {name: value for name, value in row.items() if name != "null"}
    return given | dict.fromkeys(row.get("null", ()))


def unanswered(name: str, error: Mapping[str, Any] | None = None) -> BenchVariant:
    """Return a variant that answered nothing, or one that never started."""
    if error is None:
        return BenchVariant(name=name)
    setup = BenchSetup(model="meta-llama/Llama-3.1-8B-Instruct")
    lost = BenchLoad(
        concurrency=1, requests=32, answered=0, seconds=1.5, metrics={}, errors=(error,)
    )
    return BenchVariant(name=name, setup=setup, loads=(lost,))


def told(name: str) -> BenchReport:
    """Make a report of the table."""
    row = TABLE[name]
    variants = [told_variant(one) for one in row.get("variants", ())]
    variants += [unanswered(**one) for one in row.get("measured", ())]
    return report(tuple(variants), **row.get("report", {}))


REPORTS: Mapping[str, Callable[[], BenchReport]] = {name: partial(told, name) for name in TABLE}
quantized, drafts, tiny = REPORTS["quantized"], REPORTS["drafts"], REPORTS["tiny"]
even, unpriced, searched = REPORTS["even"], REPORTS["unpriced"], REPORTS["searched"]
failed, partly_failed = REPORTS["failed"], REPORTS["partly failed"]
twelve, open_loop, hostile = REPORTS["twelve"], REPORTS["open loop"], REPORTS["hostile"]

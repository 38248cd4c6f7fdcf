"""Accuracy of the load client: what it says of a server, against what the server really did.

    python benchmarks/load_client.py [--concurrency 1,8,32,128] [--rounds 3]

A server of our own, in a process of its own, emits tokens at known times and keeps when it sent
each.  Both run on this machine: where it is late, so is the truth.  Every metric of `packager
bench` is computed twice, from what the client saw and from what the server did, and compared by
its mean, median and 90th percentile.  Client and server share the machine's processors, so
that what this shows at 128 requests at a time is a lower bound of what two machines give.

The last line of stdout is one JSON object with every figure; nothing else may run meanwhile.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from judging import at_most, verdict
from measuring import say

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from packager.addons.bench.load.run import run_load  # noqa: E402
from packager.addons.bench.load.values import (  # noqa: E402
    Chunk,
    Level,
    LoadPlan,
    LoadRequest,
    LoadResult,
    LoadRun,
)
from packager.addons.bench.metrics import load_figures  # noqa: E402
from packager.core.bench import BenchLoad  # noqa: E402
from tests.support.llm_double import Behaviour, LlmDouble, Record  # noqa: E402

TTFT_S, ITL_S = 0.2, 0.03
TOKENS = (24, 72)  # at random: answers do not end together
WAVES = 12  # requests of each worker; the first ones all come at once, and wait at the server
MOST_OFF = 0.05
STATISTICS = ("avg", "p50", "p90")
# By two clocks each, or of the run's length and not of the server.
LEFT_OUT = ("min_request_timestamp", "max_response_timestamp", "benchmark_duration")


def main() -> int:
    """Measure at every concurrency and print the figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--concurrency", default="1,8,32,128", help="requests at a time")
    parser.add_argument("--rounds", type=int, default=3, help="the median of their errors counts")
    arguments = parser.parse_args()
    levels = tuple(map(int, arguments.concurrency.split(",")))
    load_at_start = os.getloadavg()[0]
    found = {f"concurrency_{level}": _level(level, arguments.rounds) for level in levels}
    worst = max(one["worst"] for one in found.values())
    figures = {
        "benchmark": "load_client",
        **found,
        "worst": worst,
        "most_off": MOST_OFF,
        "load_at_start": load_at_start,
        "load_at_end": os.getloadavg()[0],
        **verdict(
            [at_most(f"{name} off by", one["worst"], MOST_OFF) for name, one in found.items()]
        ),
    }
    print(json.dumps(figures))
    return 0 if figures["targets_met"] else 1


def _level(concurrency: int, rounds: int) -> dict[str, Any]:
    """Return by how much each metric is off at one concurrency, as shares."""
    errors: dict[str, list[float]] = {}
    cpu: list[float] = []
    late: list[float] = []
    for number in range(rounds):
        ours, truth, run, ttft_s = _measured(concurrency, number)
        for name, share in _off(ours, truth).items():
            errors.setdefault(name, []).append(share)
        cpu.append(run.client_cpu_s / run.seconds)
        late.append(ttft_s - TTFT_S)
    off = {name: round(statistics.median(shares), 4) for name, shares in errors.items()}
    worst = max(off, key=lambda name: off[name])
    say(f"concurrency {concurrency}: at most {off[worst]:.1%} off, {worst}")
    return {
        "off": off,
        "worst_metric": worst,
        "worst": off[worst],
        "client_cpu_share": round(statistics.median(cpu), 3),
        "server_late_s": round(statistics.median(late), 4),
    }


def _measured(concurrency: int, number: int) -> tuple[BenchLoad, BenchLoad, LoadRun, float]:
    """Run one load; return the client's figures, the server's, the run, and the true TTFT."""
    count = WAVES * concurrency
    level = Level(concurrency=concurrency)
    chance = random.Random(number)
    requests = [
        LoadRequest(
            endpoint="/v1/chat/completions",
            body={
                "messages": [{"role": "user", "content": f"{number} {one} a b c d"}],
                "max_tokens": chance.randint(*TOKENS),
                "stream": True,
            },
        )
        for one in range(count)
    ]
    plan = LoadPlan(level=level, requests=count)
    with LlmDouble(Behaviour(ttft_s=TTFT_S, itl_s=ITL_S), process=True) as double:
        run = run_load(double.url, "double", requests, plan)
        records = double.records()
    assert all(one.failure is None for one in run.results), run.results
    truth = load_figures([_as_run(records, level, run)])
    ttft_s = statistics.median(record.sent_s[0] - record.came_s for record in records)
    return load_figures([run]), truth, run, ttft_s


def _as_run(records: Sequence[Record], level: Level, run: LoadRun) -> LoadRun:
    """Return what the server did as if a client had seen it without any delay."""
    began = min(record.came_s for record in records)
    results = tuple(
        LoadResult(
            number=record.number,
            sent_s=record.came_s - began,
            ended_s=record.ended_s - began,
            first_byte_s=record.sent_s[0] - began,
            chunks=tuple(Chunk(at_s=at - began) for at in record.sent_s),
            text="".join(f"w{token} " for token in range(record.tokens)),
            input_tokens=record.prompt_tokens,
            output_tokens=record.tokens,
            status=200,
        )
        for record in records
    )
    return LoadRun(
        level=level,
        results=results,
        seconds=max(record.ended_s for record in records) - began,
        started=run.started,
    )


def _off(ours: BenchLoad, truth: BenchLoad) -> dict[str, float]:
    """Return by which share of the truth each metric is off, by name and statistic."""
    off = {}
    for name, metric in truth.metrics.items():
        if name in LEFT_OUT:
            continue
        for statistic in STATISTICS:
            true = getattr(metric, statistic)
            seen = getattr(ours.metrics[name], statistic) if name in ours.metrics else None
            if true is None:
                continue
            off[f"{name}.{statistic}"] = (
                1.0 if seen is None else abs(seen - true) / abs(true) if true else float(seen != 0)
            )
    return off


if __name__ == "__main__":
    sys.exit(main())

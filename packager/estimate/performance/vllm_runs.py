"""One load as `vllm bench serve --save-result` and `sglang.bench_serving` save it.

Plans and reports read it alike; each takes the figures that it needs.  Fields are those of vLLM
0.33 (`benchmarks/serve.py`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from packager.core.documents import NotStrict, field, shorten

TIMES = ("ttft", "tpot", "itl", "e2el")
STATISTICS = ("mean", "median", "std", "p99")
RATES = ("request_throughput", "output_throughput", "total_token_throughput")
TOTALS = ("total_input_tokens", "total_output_tokens")
_FIGURES = (
    *(f"{statistic}_{time}_ms" for time in TIMES for statistic in STATISTICS),
    *RATES,
    *TOTALS,
    "duration",
    "accept_length",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class VllmRun:
    """What a document says of its load."""

    completed: int
    failed: int
    concurrency: int | None  # requests at once; of a rate the most
    rate: float | None  # requests a second; None: as fast as they are answered
    model: str
    figures: Mapping[str, float]  # by field; those that are null are left out

    @property
    def is_closed(self) -> bool:
        """Whether as many requests as `concurrency` says were always under way."""
        return self.concurrency is not None and self.rate is None


def is_vllm_run(document: Mapping[str, Any]) -> bool:
    """Return whether a document is what these programs save."""
    return "num_prompts" in document and "mean_ttft_ms" in document


def read_vllm_run(document: Mapping[str, Any]) -> VllmRun:
    """Read a document; raises `NotStrict` where it is none."""
    server = document.get("server_info")  # of SGLang, with --output-details
    named = server.get("model_path") if isinstance(server, dict) else None
    model = document.get("model_id") or named
    concurrency, rate = document.get("max_concurrency"), document.get("request_rate")
    if concurrency is not None:
        concurrency = field(document, "max_concurrency", int)
    return VllmRun(
        completed=field(document, "completed", int),
        failed=field(document, "failed", int) if document.get("failed") is not None else 0,
        concurrency=concurrency,
        rate=None if rate in (None, "inf", math.inf) else _number(rate, "request_rate"),
        model=model if isinstance(model, str) else "",
        figures={
            name: _number(document[name], name)
            for name in _FIGURES
            if document.get(name) is not None
        },
    )


def _number(value: object, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise NotStrict(f"{name} is {shorten(value)}, expected a number")
    return value

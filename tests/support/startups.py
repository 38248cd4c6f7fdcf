"""Start-ups of real servers, as their logs tell: `data/startups.csv`, one row a start.

`data/cache_logs.csv` has what logs say of a cache alone, whatever the device left for it.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from packager.catalog.instances import find_instance
from packager.core.plan import MemoryBudget
from packager.core.shape import Shape
from packager.core.techniques import Draft
from packager.core.units import GIB
from packager.estimate.sizing.memory import MemoryInputs, make_budget
from packager.models.architectures.profile import make_profile
from tests.support.places import DATA
from tests.support.shapes import plain
from tests.support.startup_models import startup_model

TABLE = DATA / "sizing" / "startups.csv"
CACHES = DATA / "sizing" / "cache_logs.csv"


@dataclass(frozen=True, slots=True, kw_only=True)
class Startup:
    """One start of a server; figures that its log lacks are 0."""

    model: str
    engine: str
    engine_version: str
    instance: str
    tp: int
    pp: int
    gpu_memory_utilization: float
    max_num_seqs: int
    max_model_len: int
    max_num_batched_tokens: int | None  # None: the engine's own choice for the device
    kv_dtype: str
    prefix_caching: bool | None  # None: the engine's own choice
    weights_bytes: float
    kv_bytes: float
    kv_tokens: int
    started: bool
    source: str
    note: str

    @property
    def id(self) -> str:
        split = f"tp{self.tp}" + (f"pp{self.pp}" if self.pp > 1 else "")
        kv = f"-kv-{self.kv_dtype}" if self.kv_dtype != "auto" else ""
        state = "" if self.started else "-refused"
        version = f"{self.engine}-{self.engine_version}"
        if self.instance != "ml.p5.48xlarge":
            version += f"-{self.instance}"
        return f"{self.model}-{version}-{split}-{self.max_model_len}{kv}{state}"


@cache
def startups() -> tuple[Startup, ...]:
    """Read every row of the table."""
    with TABLE.open(encoding="utf-8", newline="") as rows:
        return tuple(map(_startup, csv.DictReader(rows)))


def _startup(row: dict[str, str]) -> Startup:
    texts = ("model", "engine", "engine_version", "instance", "kv_dtype", "source", "note")
    counts = ("tp", "pp", "max_num_seqs", "max_model_len", "kv_tokens")
    known: dict[str, Any] = {name: row[name] for name in texts}
    known |= {name: int(row[name] or 0) for name in counts}
    return Startup(
        **known,
        gpu_memory_utilization=float(row["gpu_memory_utilization"]),
        max_num_batched_tokens=int(row["max_num_batched_tokens"] or 0) or None,
        weights_bytes=float(row["weights_gib"] or 0) * GIB,
        kv_bytes=float(row["kv_gib"] or 0) * GIB,
        started=row["started"] == "yes",
        prefix_caching=row["prefix_caching"] == "yes" or None,
    )


def is_compared(startup: Startup) -> bool:
    """Check whether a row states what its server was started with, and what it found."""
    return startup.started and not startup.note.startswith("left out")


def budget_of(startup: Startup) -> MemoryBudget:
    """Budget a start with the settings of its log."""
    profile, _ = make_profile(startup_model(startup.model))
    shape = Shape(
        max_batch=startup.max_num_seqs,
        max_input_tokens=startup.max_model_len - 1,
        max_total_tokens=startup.max_model_len,
    )
    demand = MemoryInputs(
        kv_element_bytes=1 if startup.kv_dtype == "fp8" else 2,
        max_prefill_tokens=startup.max_num_batched_tokens,
        usable_share=startup.gpu_memory_utilization,
        reserve=False,
        prefix_caching=startup.prefix_caching,
        engine=startup.engine,
        engine_version=startup.engine_version,
    )
    instance = replace(find_instance(startup.instance), devices=startup.tp * startup.pp)
    return make_budget(profile, instance, shape, startup.tp, demand, pp_degree=startup.pp)


def cache_logs() -> list[dict[str, str]]:
    """Read what logs say of caches: requests of so many tokens in so many GiB."""
    with CACHES.open(encoding="utf-8", newline="") as rows:
        return list(csv.DictReader(rows))


def held_in_log(row: dict[str, str]) -> float:
    """Count the requests that the log's memory holds, a part of one as well."""
    profile, _ = make_profile(plain(row["model"]))
    tokens, drafted = int(row["tokens"]), int(row["draft_tokens"])
    head = Draft(
        kind="mtp", speculative_tokens=drafted, kv_bytes_per_token=4096, kv_heads=profile.kv_heads
    )
    demand = MemoryInputs(
        kv_element_bytes=1 if row["kv_dtype"] == "fp8" else 2,
        max_prefill_tokens=int(row["max_num_batched_tokens"]),
        draft=head if drafted else None,
        prefix_caching=row["prefix_caching"] == "yes" or None,
        engine=row["engine"],
        engine_version=row["engine_version"],
        reserve=False,
    )
    shape = Shape(max_batch=1, max_input_tokens=tokens - 1, max_total_tokens=tokens)
    budget = make_budget(profile, find_instance("ml.p5.48xlarge"), shape, int(row["tp"]), demand)
    return float(row["kv_gib"]) * GIB / budget.request_bytes(tokens, reading=True)


def error_of(startup: Startup) -> float:
    """Return by how much the predicted cache differs from the log's, as a share of it.

    Tokens are compared where the log states them, else bytes.  Up to 0.20 vLLM logs the tokens
    of all layers, those behind a window as well.
    """
    budget = budget_of(startup)
    if startup.kv_tokens:
        tokens = budget.kv_pool_bytes // max(1, budget.kv_bytes_per_token)
        return tokens / startup.kv_tokens - 1
    return budget.kv_pool_bytes / startup.kv_bytes - 1

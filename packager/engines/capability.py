"""Which kinds of layers a version of an engine has kernels for: caches by attention, experts.

A parser takes every name of a cache's type, and a device may have a format that the engine uses
in linear layers alone.  `data/capabilities.json` is read from the engines' sources by
`scripts/engine-capabilities`; a row holds until the next version there.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from packager.core.versions import is_within, version_key
from packager.engines.rules import Facts
from packager.engines.schema import ENGINES, find_schema
from packager.findings import Finding

TABLE = ENGINES.parent / "capabilities.json"
CACHE_DTYPE = "kv-cache-dtype"
WHOLE = frozenset({"auto", "float16", "bfloat16"})  # that every attention keeps
WORDS = {"heads": "keys and values for each head", "mla": "one latent for all heads"}


def check_capability(
    who: str,
    engine: str,
    version: str,
    options: Mapping[str, str | bool],
    facts: Facts,
    *,
    spelled: str = CACHE_DTYPE,
) -> Iterator[Finding]:
    """Find a type of cache, and experts, that no kernel of this version computes on GPUs of NVIDIA.

    `options` are by the engine's own names; `facts` are those of rules.  What is not known is not
    judged: a version older than the table, a model or a device that nobody named.
    """
    row = _row(engine, version)
    if facts.get("device", "nvidia") != "nvidia":
        return
    kind, dtype = str(facts.get("attention", "")), options.get(CACHE_DTYPE, "auto")
    caches = row.get("cache", {})
    types = {one for of in caches if of.startswith(kind) for one in caches[of]} | WHOLE
    if kind in WORDS and caches and dtype not in types and dtype in _taken(engine, version):
        message = (
            f"{who} {version} has no attention that keeps a cache of {spelled!r} {dtype} "
            f"for a model with {WORDS[kind]}"
        )
        hint = f"it takes {', '.join(sorted(types))}"
        yield Finding("error", "kv-dtype-unsupported", message, hint)
    least = row.get(str(facts.get("weight_format", "")), {}).get("experts", 0.0)
    capability = facts.get("compute_capability")
    if facts.get("experts") and isinstance(capability, int | float) and capability < least:
        message = (
            f"{who} {version} has no kernel for experts in FP8 on a device of compute capability "
            f"{capability:g}, where it computes linear layers alone with such weights"
        )
        hint = f"choose an instance of compute capability {least:g} or more, or --family vllm"
        yield Finding("error", "format-unsupported", message, hint)


def _taken(engine: str, version: str) -> tuple[str, ...]:
    """Return the types of cache that the parser takes; others are refused for that."""
    option = find_schema(engine, version).find(CACHE_DTYPE)
    return () if option is None else option.choices or option.values


def _row(engine: str, version: str) -> Mapping[str, Any]:
    """Return the newest row that is not above a version; {} where there is none."""
    rows = _table().get(engine, {})
    found = [row for since, row in rows.items() if is_within(version, since)]
    return found[-1] if found and version_key(version) is not None else {}


@cache
def _table() -> Mapping[str, Mapping[str, Any]]:
    read: Mapping[str, Mapping[str, Any]] = json.loads(TABLE.read_text(encoding="utf-8"))
    return {engine: rows for engine, rows in read.items() if engine != "date"}

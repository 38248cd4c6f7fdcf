"""Which kinds of layers a version of an engine has kernels for: attention and its cache, experts.

What SGLang's arguments refuse on a device, backends and indexers among it, is of the same table.

A parser takes every name of a backend and of a cache's type, and a device may have a format that
the engine uses in linear layers alone.  `data/capabilities.json` is read from the engines' sources
by `scripts/engine-capabilities`; a row holds until the next version there.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from typing import Any

from packager.core.findings import Finding
from packager.core.versions import is_within, version_key
from packager.engines.rules import Facts
from packager.engines.schema import ENGINES, find_schema

TABLE = ENGINES.parent / "capabilities.json"
CACHE_DTYPE, BACKEND = "kv-cache-dtype", "attention-backend"
PHASES = ("prefill-attention-backend", "decode-attention-backend")  # each in place of `BACKEND`
EXPERTS = "moe-backend"
WHOLE = frozenset({"auto", "float16", "bfloat16"})  # that every attention keeps
WORDS = {
    "heads": "a model with keys and values for each head",
    "mla": "a model with one latent for all heads",
    "mla-sparse": "a model whose latents are chosen by an index",
}

Options = Mapping[str, str | bool]


def check_capability(
    who: str,
    engine: str,
    version: str,
    options: Options,
    facts: Facts,
    *,
    spelled: str = CACHE_DTYPE,
) -> Iterator[Finding]:
    """Find attention, types of cache and experts that no kernel of a version computes on NVIDIA.

    `options` are by the engine's own names; `facts` are those of rules.  Unknown inputs are not
    checked: a version older than the table, an unspecified model or device.
    """
    row = _row(engine, version)
    if facts.get("device", "nvidia") != "nvidia":
        return
    who, capability = f"{who} {version}", facts.get("compute_capability")
    kind, named = str(facts.get("attention_kind", "")), str(options.get(BACKEND, "")).upper()
    known: Mapping[str, Any] = row.get("attention", {})
    able = {name: one for name, one in known.items() if kind in WORDS and one["kind"] == kind}
    if known and kind in WORDS:
        here = {name: one for name, one in able.items() if _runs_on(one, capability)}
        if (named in known and named not in here) or not here:
            yield _no_attention(who, kind, named if named in known else "", here, facts)
        else:
            kept = [here[named]] if named in here else [*here.values()]
            types = {dtype for one in kept for dtype in one["cache"]} | WHOLE
            dtype = options.get(CACHE_DTYPE, "auto")
            if dtype not in types and dtype in _taken(engine, version):
                with_it = f" with {named}" if named in here else ""
                message = f"{who} has no attention that keeps a cache of {spelled!r} {dtype} for "
                message += f"{WORDS[kind]}{with_it}"
                hint = f"it takes {', '.join(sorted(types))}"
                yield Finding("error", "kv-dtype-unsupported", message, hint)
    yield from _check_experts(who, row, options, facts)
    yield from _check_refused(who, row, options, facts)
    least = row.get(str(facts.get("weight_format", "")), {}).get("experts", 0.0)
    if facts.get("experts") and isinstance(capability, int | float) and capability < least:
        message = (
            f"{who} has no kernel for experts in FP8 on a device of compute capability "
            f"{capability:g}, where it computes linear layers alone with such weights"
        )
        hint = f"choose an instance of compute capability {least:g} or more, or --family vllm"
        yield Finding("error", "format-unsupported", message, hint)


def _check_experts(
    who: str, row: Mapping[str, Any], options: Options, facts: Facts
) -> Iterator[Finding]:
    """Find a backend of experts whose kernels for the format of weights are for other devices."""
    capability, named = facts.get("compute_capability"), str(options.get(EXPERTS, ""))
    able: Mapping[str, Any] = row.get("experts", {}).get(str(facts.get("weight_format", "")), {})
    if not facts.get("experts") or named not in able or _is_among(capability, able[named]):
        return
    here = [name for name, devices in able.items() if _is_among(capability, devices)]
    message = (
        f"{who}: {named} of {EXPERTS!r} does not compute such experts on a device of compute "
        f"capability {capability:g}"
    )
    yield Finding("error", "experts-unsupported", message, f"it has {', '.join(here)}, or auto")


def _check_refused(
    who: str, row: Mapping[str, Any], options: Options, facts: Facts
) -> Iterator[Finding]:
    """Find values of options that the engine's own arguments refuse on the device."""
    capability = facts.get("compute_capability")
    is_split = any(name in options for name in PHASES)
    for one in row.get("refused", ()):
        name, value = one["option"], one["value"]
        given = options.get(name, "")
        said = str(given).lower() if isinstance(given, bool) else given
        if said == value and capability in one["devices"] and not (name == BACKEND and is_split):
            message = f"{who} refuses {name!r} {value} on a device of compute capability "
            message += f"{capability:g}"
            hint = f"leave {name!r} out: it chooses one by the device"
            yield Finding("error", "option-not-for-device", message, hint)


def _no_attention(
    who: str, kind: str, named: str, here: Mapping[str, Any], facts: Facts
) -> Finding:
    """Return why no backend, or not the requested one, computes a model's attention on a device."""
    capability = facts.get("compute_capability")
    device = f" on a device of compute capability {capability:g}" if capability else ""
    what = f"{named} of {BACKEND!r}" if named else "no attention backend"
    does = "does not compute" if named else "computes"
    message = f"{who}: {what} {does} {WORDS[kind]}{device}"
    hint = f"it has {', '.join(sorted(here))}" if here else "choose a newer instance"
    return Finding("error", "attention-unsupported", message, hint)


def _runs_on(backend: Mapping[str, Any], capability: object) -> bool:
    """Report whether a backend takes a device; an unknown device is not judged."""
    return _is_among(capability, backend["devices"])


def _is_among(capability: object, devices: Collection[float]) -> bool:
    """Report whether a device is among some; an unknown one is not judged."""
    every = {one for row in _table().values() for one in _devices(row)}
    return capability not in every or capability in devices


def _devices(rows: Mapping[str, Any]) -> Iterator[float]:
    for row in rows.values():
        for one in row.get("attention", {}).values():
            yield from one["devices"]


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

"""Dominating matches: an artifact compiled for more than was asked can serve less.

Only on request, because the artifact then decides the configuration: batch,
lengths and buckets must be rendered as they are in it, and cost memory and time
that was not asked for.  So a match always says what is effective.

Everything but the shape must be equal.  Of the shape:

    at least as large   max_batch, context_batch, token_batch, max_input_tokens,
                        max_total_tokens, max_batched_tokens
    covering            each bucket asked for has one of its length or longer;
                        each range of `dynamic` lies inside the one of that name
    containing          graph_sizes
    equal               everything else: it changes how results are computed

Kinds: `neuron` pads to its shape and `tensorrt-llm-engine` has limits built in.
Not `vllm-compile`: vLLM looks into its cache by the exact configuration.  Not
checkpoints and drafts: they have no shape.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from artifact_cache.entry import Entry
from artifact_cache.explain import Difference, differences

KINDS = frozenset({"neuron", "tensorrt-llm-engine"})

_AT_LEAST = (
    "max_batch",
    "context_batch",
    "token_batch",
    "max_input_tokens",
    "max_total_tokens",
    "max_batched_tokens",
)
_COVERING = ("context_buckets", "token_buckets")


@dataclass(frozen=True, slots=True)
class Match:
    """An entry for a larger shape, and every value of it that differs from what was asked."""

    entry: Entry
    effective: tuple[Difference, ...]  # `found` is what has to be rendered


def find_larger(wanted: Mapping[str, Any], entries: Iterable[Entry]) -> Match | None:
    """Choose the entry that serves what is wanted with the smallest waste; None without one.

    Waste is KV cache first, then prefill, then age and key, so that everybody
    chooses the same.
    """
    fitting = [entry for entry in entries if dominates(entry.keydoc, wanted)]
    if not fitting:
        return None
    best = min(fitting, key=_waste)
    return Match(best, tuple(differences(wanted, best.keydoc)))


def dominates(larger: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Say whether an artifact of `larger` serves what `wanted` asks for, and is not the same."""
    if wanted.get("kind") not in KINDS or not isinstance(larger.get("shape"), Mapping):
        return False
    if _same(larger, wanted) or not _same(_but(larger, "shape"), _but(wanted, "shape")):
        return False
    theirs, ours = larger["shape"], wanted["shape"]
    if theirs.keys() != ours.keys():  # of another schema: nobody here knows what it means
        return False
    judged = {*_AT_LEAST, *_COVERING, "graph_sizes", "dynamic"}
    return (
        _same(_but(theirs, *judged), _but(ours, *judged))
        and all(_at_least(theirs[name], ours[name]) for name in _AT_LEAST)
        and all(_covers(theirs[name], ours[name]) for name in _COVERING)
        and set(ours["graph_sizes"]) <= set(theirs["graph_sizes"])
        and _encloses(theirs["dynamic"], ours["dynamic"])
    )


def _same(one: object, other: object) -> bool:
    return not any(True for _ in differences(one, other))


def _but(document: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in document.items() if name not in names}


def _at_least(theirs: int | None, ours: int | None) -> bool:
    """Compare sizes; one that is compiled apart is no stand-in for one that is not."""
    if theirs is None or ours is None:
        return theirs is ours
    return theirs >= ours


def _covers(theirs: Sequence[int], ours: Sequence[int]) -> bool:
    if not theirs or not ours:
        return not theirs and not ours
    return max(theirs) >= max(ours)


def _encloses(theirs: Sequence[Mapping[str, Any]], ours: Sequence[Mapping[str, Any]]) -> bool:
    ranges = {dimension["name"]: dimension for dimension in theirs}
    return ranges.keys() == {dimension["name"] for dimension in ours} and all(
        ranges[asked["name"]]["minimum"] <= asked["minimum"]
        and ranges[asked["name"]]["maximum"] >= asked["maximum"]
        for asked in ours
    )


def _waste(entry: Entry) -> tuple[int, int, int, str]:
    shape = entry.keydoc["shape"]
    assert isinstance(shape, dict)  # `dominates` has looked
    slots: Any = shape["max_batch"]
    total: Any = shape["max_total_tokens"]
    prefill: Any = shape["max_input_tokens"]
    return slots * total, prefill, -entry.built_at, entry.key

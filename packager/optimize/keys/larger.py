"""Larger shapes: when an artifact compiled for one shape serves a smaller one.

at least as large   max_batch, context_batch, token_batch, max_input_tokens,
                    max_total_tokens, max_batched_tokens
covering            each bucket asked for has one of its length or longer;
                    each range of `dynamic` lies inside the one of that name
containing          graph_sizes
equal               everything else: it changes how results are computed
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from artifact_cache.explain import differences

_AT_LEAST = (
    "max_batch",
    "context_batch",
    "token_batch",
    "max_input_tokens",
    "max_total_tokens",
    "max_batched_tokens",
)
_COVERING = ("context_buckets", "token_buckets")
_JUDGED = frozenset({*_AT_LEAST, *_COVERING, "graph_sizes", "dynamic"})


def covers_shape(theirs: Any, ours: Any) -> bool:
    """Report whether an artifact for the shape `theirs` serves the shape `ours`, both JSON."""
    if not isinstance(theirs, Mapping) or theirs.keys() != ours.keys():
        return False  # another schema: its meaning is unknown here
    return (
        not any(differences(_unjudged(theirs), _unjudged(ours)))
        and all(_at_least(theirs[name], ours[name]) for name in _AT_LEAST)
        and all(_covers(theirs[name], ours[name]) for name in _COVERING)
        and set(ours["graph_sizes"]) <= set(theirs["graph_sizes"])
        and _encloses(theirs["dynamic"], ours["dynamic"])
    )


def shape_cost(shape: Mapping[str, int]) -> tuple[int, int]:
    """Return the tokens of KV cache that the shape reserves, then its longest prompt."""
    return shape["max_batch"] * shape["max_total_tokens"], shape["max_input_tokens"]


def _unjudged(shape: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in shape.items() if name not in _JUDGED}


def _at_least(theirs: int | None, ours: int | None) -> bool:
    """Return whether a size covers another; an unset size matches only an unset one."""
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

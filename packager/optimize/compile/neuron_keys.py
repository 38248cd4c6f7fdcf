"""Key documents of Neuron graphs that another tool compiled.

`KNOWN` holds what follows from the format of a compiler cache alone; the rest must be stated
by the imported tree or by the user, or there is no key.  A compiler shipped with packager
states all of it itself; a graph that it should find is imported with that key document.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any

from artifact_cache.explain import Difference, differences
from packager.optimize.steps.configs import NO_GRAPH
from packager.optimize.steps.key_parts import config_fields


class Unknown(Enum):
    """Marker of a value that was not stated; None means that the field does not apply."""

    VALUE = 0


UNKNOWN = Unknown.VALUE

# Of a compiler cache with device code only: no host library is in it.
KNOWN: Mapping[str, Any] = {
    "schema": 2,
    "kind": "neuron",
    "layout": "neff-cache",
    "weights": None,
    "graph": {"architecture": UNKNOWN, "code": None, "plugins": []},
    "shape": {
        "max_batch": UNKNOWN,
        "context_batch": UNKNOWN,
        "token_batch": UNKNOWN,
        "max_input_tokens": UNKNOWN,
        "max_total_tokens": UNKNOWN,
        "max_batched_tokens": None,
        "context_buckets": UNKNOWN,
        "token_buckets": UNKNOWN,
        "prefill_chunk_tokens": None,
        "beam_width": 1,
        "block_tokens": None,
        "paged": False,
        "graph_sizes": [],
        "dynamic": [],
    },
    "precision": {
        "dtype": UNKNOWN,
        "weights": None,
        "activations": None,
        "kv_dtype": UNKNOWN,
        "auto_cast": UNKNOWN,
        "auto_cast_dtype": None,
        "logits_dtype": UNKNOWN,
    },
    "parallelism": {
        "tp": UNKNOWN,
        "pp": 1,
        "ep": 1,
        "attention_dp": 1,
        "cp": 1,
        "world": UNKNOWN,
        "local_ranks": UNKNOWN,
        "start_rank": 0,
        "ranks": UNKNOWN,
        "sharding": UNKNOWN,
    },
    "target": {
        "backend": "neuron",
        "arch": UNKNOWN,
        "device": None,
        "logical_core_size": UNKNOWN,
        "cpu": None,
        "os": "linux",
        "machine": "any",
        "libc": "none",
    },
    "toolchain": {"packages": UNKNOWN, "environment": {}, "image": None, "worker": UNKNOWN},
    "invocation": {"compiler_args": UNKNOWN, "engine_args": {}, "env": {}},
    "speculation": None,
    "sampling": {"on_device": UNKNOWN, "max_top_k": None},
    "lora": None,
}


def worker_of(layout: str) -> str:
    """Return a stand-in for the worker's digest: the graph was compiled by another tool."""
    return hashlib.sha256(f"packager-import-v1 {layout}".encode()).hexdigest()


def graph_fields(config: Mapping[str, Any]) -> dict[str, str]:
    """Return what shapes the graph of a model, by field of its config."""
    return config_fields(config, NO_GRAPH)


def sharding_of(config: Mapping[str, Any], tp: int) -> str | None:
    """Return how KV heads are sharded, as Neuron's libraries decide; None where unknown."""
    heads = config.get("num_key_value_heads") or config.get("num_attention_heads")
    if type(heads) is not int or heads < 1:
        return None
    return "replicate" if tp % heads == 0 else "convert"


def with_values(document: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of a document with values set by JSON pointer.

    Raises KeyError for an invalid one.
    """
    made: dict[str, Any] = copy.deepcopy(dict(document))
    for pointer, value in values.items():
        *path, last = (_unescaped(part) for part in pointer.split("/")[1:])
        group = made
        for name in path:
            group = group[name]
            if not isinstance(group, dict):
                raise KeyError(pointer)
        if last not in group and path[-1:] not in (["engine_args"], ["env"]):
            raise KeyError(pointer)
        group[last] = value
    return made


def unknown_in(document: Mapping[str, Any], pointer: str = "") -> Iterator[str]:
    """Yield the JSON pointers of values that are not known yet."""
    for name, value in document.items():
        if value is UNKNOWN:
            yield f"{pointer}/{name}"
        elif isinstance(value, Mapping):
            yield from unknown_in(value, f"{pointer}/{name}")


def contradictions(document: Mapping[str, Any], said: Mapping[str, Any]) -> Iterator[Difference]:
    """Yield the values in which a document contradicts the imported tree."""
    for pointer, value in said.items():
        group: Any = document
        for name in (_unescaped(part) for part in pointer.split("/")[1:]):
            group = group.get(name) if isinstance(group, Mapping) else None
        yield from differences(value, group, pointer)


def _unescaped(part: str) -> str:
    return part.replace("~1", "/").replace("~0", "~")

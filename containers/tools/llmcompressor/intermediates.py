"""Activations between two blocks, to a file and back, with every bit and stride.

`IntermediatesCache` (llm-compressor 0.14) holds values of a batch by name: tensors, and
lists, tuples and mappings of such.  A name's values of all batches are one file, and are
written again only when they changed: masks and positions are the same for all blocks.
"""

from __future__ import annotations

import json
import weakref
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from keeping import DTYPES, Kept
from llmcompressor.pipelines.cache import IntermediatesCache, IntermediateValue
from safetensors import safe_open

PLAIN = (bool, int, float, str, type(None))


class CannotKeep(Exception):
    """A value between two blocks is of a kind that this module does not write."""


class Activations:
    """Writes what changed since it wrote last."""

    def __init__(self, kept: Kept) -> None:
        self._kept = kept
        self._written: dict[str, tuple[list[Any], list[int]]] = {}  # name → values, versions

    def write(self, cache: IntermediatesCache) -> dict[str, str]:
        """Write the values of every name; return the files by name."""
        before = self._kept.progress.activations
        names = sorted({name for batch in cache.batch_intermediates for name in batch})
        return {name: self._file(name, cache, before) for name in names}

    def _file(self, name: str, cache: IntermediatesCache, before: Mapping[str, str]) -> str:
        values = [batch.get(name) for batch in cache.batch_intermediates]
        tensors = list(_tensors_in(values))
        versions = [tensor._version for tensor in tensors]
        held, then = self._written.get(name, ([], []))
        if name in before and then == versions and _are(held, values):
            return before[name]
        written: dict[str, torch.Tensor] = {}
        tree = [_flatten(value, written) for value in values]
        file = self._kept.write(written, {"tree": json.dumps(tree)})
        # Not the values themselves: those of the block before shall be freed.
        refs = [None if value is None else weakref.ref(value) for value in values]
        self._written[name] = refs, versions
        return file


def read_activations(
    kept: Kept, onload: torch.device, offload: torch.device | None
) -> IntermediatesCache:
    """Read the cache as it was when it was written."""
    batches: list[dict[str, IntermediateValue]] = []
    for name, file in sorted(kept.progress.activations.items()):
        values = list(_read(kept.path(file), onload, offload))
        batches.extend({} for _ in range(len(values) - len(batches)))
        for batch, value in zip(batches, values, strict=True):
            if value is not None:
                batch[name] = value
    return IntermediatesCache(batches, offload)


def _are(held: list[Any], values: list[Any]) -> bool:
    return len(held) == len(values) and all(
        now is None if then is None else then() is now
        for then, now in zip(held, values, strict=True)
    )


def _tensors_in(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, IntermediateValue):
        yield from _tensors_in(value.value)
    elif isinstance(value, dict):
        for one in value.values():
            yield from _tensors_in(one)
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from _tensors_in(one)


def _flatten(value: Any, tensors: dict[str, torch.Tensor]) -> Any:
    """Turn a value into JSON; tensors go to `tensors`, one of many places once."""
    match value:
        case IntermediateValue():
            on = "" if value.device is None else torch.device(value.device).type
            return ["value", on, _flatten(value.value, tensors)]
        case torch.Tensor():
            name = f"{id(value):x}"
            tensors[name] = value.detach().to("cpu")
            if value.dtype not in DTYPES:
                raise CannotKeep(f"a tensor of {value.dtype}")
            return ["tensor", name, list(value.shape), list(value.stride())]
        case dict() if type(value) is dict and all(isinstance(key, str) for key in value):
            return ["dict", {key: _flatten(one, tensors) for key, one in value.items()}]
        case list() | tuple() if type(value) in (list, tuple):
            return [type(value).__name__, [_flatten(one, tensors) for one in value]]
        case torch.dtype() | torch.device():
            return [type(value).__name__, str(value).removeprefix("torch.")]
        case _ if type(value) in PLAIN:
            return ["plain", value]
    raise CannotKeep(f"a {type(value).__name__}")


def _read(path: Path, onload: torch.device, offload: torch.device | None) -> Iterator[Any]:
    with safe_open(path, framework="pt") as file:
        tree = json.loads(file.metadata()["tree"])
        placed: dict[str, torch.Tensor] = {}
        for value in tree:
            yield (
                None
                if value == ["plain", None]
                else _unflatten(value, file, placed, onload, offload)
            )


def _unflatten(
    told: Any,
    file: Any,
    placed: dict[str, torch.Tensor],
    onload: torch.device,
    offload: torch.device | None,
) -> Any:
    kind, first, *rest = told
    match kind:
        case "value":
            device = torch.device("cpu") if first == "cpu" else onload
            value = _unflatten(rest[0], file, placed, onload, offload)
            return IntermediateValue(value=value, device=device if first else None)
        case "tensor":
            if first not in placed:
                tensor = _placed(file.get_tensor(first), *rest)
                placed[first] = tensor if offload is None else tensor.to(offload)
            return placed[first]
        case "dict":
            return {
                key: _unflatten(one, file, placed, onload, offload) for key, one in first.items()
            }
        case "list" | "tuple":
            values = [_unflatten(one, file, placed, onload, offload) for one in first]
            return values if kind == "list" else tuple(values)
        case "dtype":
            return getattr(torch, first)
        case "device":
            return torch.device(first)
    return first


def _placed(tensor: torch.Tensor, shape: list[int], strides: list[int]) -> torch.Tensor:
    """Lay a tensor out as it was, in memory that PyTorch aligned: kernels go by both."""
    out = torch.empty_strided(shape, strides, dtype=tensor.dtype)
    once = tuple(slice(0, 1) if not stride else slice(None) for stride in strides)
    out[once].copy_(tensor[once])
    return out

"""Multi-token-prediction (MTP) heads inside a checkpoint: declared layers and their tensors.

Both are untrusted, and libraries silently drop the tensors while config.json keeps declaring them.
Layouts are data, `data/mtp.toml`; an unlisted model type is matched against every layout, so that
every head is found.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from packager.core.model import TensorInfo
from packager.core.share import read_shipped

TABLE = Path(__file__).parent / "data" / "mtp.toml"
PARTS = ("", "text_config", "mtp_config")  # of config.json, where the number may be
MAX_LAYERS = 64  # the largest head published has 3
BEHIND = "layers"  # the layout of decoder layers behind the last


@dataclass(frozen=True, slots=True, kw_only=True)
class MtpHead:
    """MTP head as config.json declares it and as the checkpoint holds it."""

    declared: int = 0  # layers by config.json; 0: it declares none, or an impossible number
    key: str = ""  # that declares them, such as `text_config.mtp_num_hidden_layers`
    problem: str = ""  # why the stated number is invalid; "" if valid
    assumed: int = 0  # layers that engines take for granted where config.json declares none
    tensors: tuple[TensorInfo, ...] = ()  # of the head, in the order given
    layout: str = ""  # of the tensors, or of the model type; "" if unknown
    missing: tuple[str, ...] = ()  # declared layers without a tensor, as messages show them
    separate: str = ""  # model type of the checkpoint that holds the head; "" when inside

    @property
    def weight_bytes(self) -> int:
        return sum(tensor.size for tensor in self.tensors)

    @property
    def layers(self) -> int:
        """Return the layers that can be served: declared or assumed, and there."""
        stated = self.declared or (0 if self.problem else self.assumed)
        return stated - min(stated, len(self.missing)) if self.tensors else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layout:
    name: str
    tensors: re.Pattern[str]
    shown: str
    model_types: frozenset[str]
    assumed: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Table:
    keys: tuple[str, ...]
    layouts: tuple[_Layout, ...]
    separate: Mapping[str, str]


def read_mtp(config: Mapping[str, Any], tensors: Iterable[TensorInfo]) -> MtpHead:
    """Find the MTP head of a checkpoint from config.json and the headers. Never raises."""
    table = _table()
    types = _model_types(config)
    declared, key, problem = _declared(config, table.keys)
    layers = _served_layers(config)
    known = next((one for one in table.layouts if one.model_types & types), None)
    found: dict[str, list[tuple[TensorInfo, str | None]]] = {}
    behind = tuple(one for one in table.layouts if one.name == BEHIND and declared and layers)
    for tensor in tensors:
        # All other layouts have "mtp" in their names: a checkpoint may have 100 000 tensors.
        for layout in table.layouts if "mtp" in tensor.name else behind:
            match = layout.tensors.search(tensor.name)
            if match is None or not _is_of_head(layout, match, layers, declared):
                continue
            found.setdefault(layout.name, []).append((tensor, match[1]))
            break
    name = max(found, key=lambda one: len(found[one])) if found else known.name if known else ""
    parts = found.get(name, [])
    chosen = next((one for one in table.layouts if one.name == name), None)
    return MtpHead(
        declared=declared,
        key=key,
        problem=problem,
        assumed=max((known.assumed.get(one, 0) for one in types), default=0) if known else 0,
        tensors=tuple(tensor for tensor, _ in parts),
        layout=name,
        missing=tuple(_missing(chosen, {index for _, index in parts}, layers, declared)),
        separate=next((table.separate[one] for one in sorted(types) if one in table.separate), ""),
    )


def _model_types(config: Mapping[str, Any]) -> frozenset[str]:
    """Return the model types of config.json and of the language model that it nests."""
    stated = (config.get("model_type"), _part(config, "text_config").get("model_type"))
    return frozenset(one for one in stated if isinstance(one, str))


def _part(config: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = config.get(name) if name else config
    return part if isinstance(part, Mapping) else {}


def _declared(config: Mapping[str, Any], keys: tuple[str, ...]) -> tuple[int, str, str]:
    """Return the first number that is stated, its key, and what is wrong with it."""
    for part in PARTS:
        for key in keys:
            value = _part(config, part).get(key)
            if value is None or (type(value) is int and value == 0):
                continue
            name = f"{part}.{key}" if part else key
            if type(value) is not int or not 0 < value <= MAX_LAYERS:
                shown = repr(value)
                shown = shown if len(shown) <= 40 else f"{shown[:37]}..."
                return 0, name, f"{name} is {shown}, not a number from 0 to {MAX_LAYERS}"
            return value, name, ""
    return 0, "", ""


def _served_layers(config: Mapping[str, Any]) -> int | None:
    """Return the number of layers that plain decoding runs; None when it is not stated."""
    for part in ("text_config", ""):
        value = _part(config, part).get("num_hidden_layers")
        if type(value) is int and value > 0:
            return value
    return None


def _is_of_head(layout: _Layout, match: re.Match[str], layers: int | None, declared: int) -> bool:
    """Check whether a layer is of the head: only those behind the last, and declared, are."""
    if layout.name != BEHIND:
        return True
    index = match[1]
    return layers is not None and len(index) < 10 and layers <= int(index) < layers + declared


def _missing(
    layout: _Layout | None, found: set[str | None], layers: int | None, declared: int
) -> Iterable[str]:
    """Return declared layers that have no tensor."""
    if not declared:
        return
    if layout is None:
        shown = (one.shown.format(layer=layers or "N") for one in _table().layouts)
        yield " or ".join(shown)
    elif layout.name == BEHIND and layers is not None:
        absent = (one for one in range(layers, layers + declared) if str(one) not in found)
        yield from (layout.shown.format(layer=one) for one in absent)
    elif not found:
        yield layout.shown.format(layer=layers or "N")


@cache
def _table() -> _Table:
    document = read_shipped(TABLE)
    return _Table(
        keys=tuple(document["keys"]),
        layouts=tuple(
            _Layout(
                name=row["name"],
                tensors=re.compile(row["tensors"], re.ASCII),
                shown=row["shown"],
                model_types=frozenset(row["model_types"]),
                assumed=row.get("assumed", {}),
            )
            for row in document["layout"]
        ),
        separate=document["separate"],
    )

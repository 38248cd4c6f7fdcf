"""Quantization methods per architecture, and their requirements: `data/quantizable.toml`.

An architecture without a row was not tried.  Methods that round each matrix by itself are allowed
with a warning: every matrix of a decoder may be rounded, wherever it stands.  Methods that pass
texts through the model, or move scales between modules, wait for `--try-untested`; so do those that
a row does not name among what was `tried`.

config.json and the headers decide the rest: whether transformers has a class that loads
the model whole, and whether all experts of a layer are one tensor.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from packager.catalog.model_types import loaders_of
from packager.core.engine_rows import engine_name
from packager.core.facts import ContainerFacts
from packager.core.model import ModelFiles, ModelProfile, TensorInfo
from packager.core.share import read_shipped
from packager.core.versions import is_within
from packager.estimate.sizing.left_out import ignored_modules
from packager.models.architectures.kinds import sees
from packager.models.architectures.profile import architecture_of
from packager.models.architectures.routers import LAYER
from packager.models.architectures.sums import is_expert

TABLE = Path(__file__).parent / "data" / "quantizable.toml"

TABLE_OF = ("llmcompressor", "stream")  # the quantizers that it speaks of

Kind = Literal["rounded", "calibrated", "folded"]

USUAL_LOADER = "causal-lm"
SEEING_LOADER = "image-text-to-text"

NUMBERED = re.compile(r"experts?\.\d+\.", re.ASCII)
NO_MATRIX = ("bias", "_scales", "_scale", "_blocks", "norm.weight")
LEAST_SIDE = 8  # convolutions have kernels of 4 and less


@dataclass(frozen=True, slots=True, kw_only=True)
class Support:
    """Table entry of a method for a model."""

    refused: str = ""  # why not; empty where it works
    tried: bool = True  # False: the architecture has no row, and nothing else decides
    loader: str = USUAL_LOADER
    folds: Literal["", "norms", "all"] = ""  # what scales move out of: norms, or matrices too
    unfolded: tuple[str, ...] = ()  # sources of scales that are left alone, below a layer


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantizableRow:
    """One architecture of the table."""

    loader: str
    unfolded: Mapping[str, tuple[str, ...]]  # method → sources of scales
    refused: Mapping[str, str]
    refused_when: Mapping[str, Any]  # values of config.json
    tried: frozenset[str] | None  # methods beside those that round; None: all


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantizableTable:
    """The file as it is read once."""

    methods: Mapping[str, Kind]
    calibrating_options: Mapping[str, frozenset[str]]
    folds: Mapping[str, Literal["norms", "all"]]  # method → what scales move out of
    rows: Mapping[str, QuantizableRow]
    streams: frozenset[str]  # architectures that are quantized while they are read
    streams_mixed: frozenset[str]  # those of which parts may have schemes of their own then
    experts_apart: Mapping[str, Mapping[str, str]]  # engine → architecture → since which version


def find_support(
    architecture: str,
    config: Mapping[str, Any],
    method: str,
    options: Collection[str] = (),
    *,
    untested: bool = False,
) -> Support:
    """Return what a method needs for a model, or why it is refused.

    `untested` allows every method for architectures without a row.  Methods that the table does
    not name belong to other quantizers: it refuses none of them.
    """
    table = read_table()
    row = table.rows.get(architecture)
    if method not in table.methods:
        return Support(loader=row.loader if row else USUAL_LOADER)
    kind = _kind(table, method, options)
    folds = table.folds[method] if kind == "folded" else ""
    if row is None:
        allowed = untested or kind == "rounded"
        return Support(tried=False, refused="" if allowed else _untried(kind), folds=folds)
    words = (method, *options, kind, "all")
    refused = next((row.refused[word] for word in words if word in row.refused), "")
    if any(config.get(key) != value for key, value in row.refused_when.items()):
        refused = ""
    left = row.unfolded.get(method, ())
    was_tried = row.tried is None or method in row.tried or kind == "rounded"
    if not was_tried and not refused:
        refused = "" if untested else _untried(kind)
        return Support(tried=False, refused=refused, loader=row.loader, folds=folds)
    return Support(refused=refused, loader=row.loader, folds=folds, unfolded=left)


def support_of(
    model: ModelFiles,
    profile: ModelProfile,
    method: str,
    options: Collection[str] = (),
    ignore: tuple[str, ...] | None = None,
    *,
    container: ContainerFacts | None = None,
    untested: bool = False,
) -> Support:
    """Return what a method needs for a model, by the table, config.json and the headers.

    `container` will serve the result; None if unknown.
    """
    architecture = profile.architecture
    support = find_support(architecture, model.config, method, options, untested=untested)
    if method not in read_table().methods:
        return support
    has_row = profile.architecture in read_table().rows
    loader = support.loader if has_row else find_loader(model.config)
    if support.refused and support.tried:
        return support
    if not loader:
        named = str(model.config.get("model_type", ""))[:40]
        reason = (
            f"the tool's transformers has no class that loads models of type {named!r} whole, and "
            "code beside the weights is never run"
        )
        return Support(refused=reason)
    found = experts_in_one(model, profile, ignore)
    if found and not _reads_apart(container, architecture):
        reason = (
            f"its experts are one tensor in the checkpoint ({found}), and "
            f"{_reader(container, architecture)} read them quantized one by one"
        )
        return Support(refused=reason, loader=loader)
    return replace(support, loader=loader)


def _reads_apart(container: ContainerFacts | None, architecture: str) -> bool:
    """Whether an engine reads experts one by one that the checkpoint has in one tensor."""
    if container is None:
        return False
    since = read_table().experts_apart.get(container.engine, {}).get(architecture, "")
    return bool(since and container.engine_version) and is_within(container.engine_version, since)


def _reader(container: ContainerFacts | None, architecture: str) -> str:
    """Describe which engines are not known to read it, and from which version on one does."""
    engine = container.engine if container else ""
    since = read_table().experts_apart.get(engine, {}).get(architecture)
    if container is None or since is None:
        return "engines are not known to"
    return f"{engine_name(engine)} {container.engine_version}, unlike {since}, does not"


def why_not(support: Support, method: str, architecture: str) -> str:
    """Describe why a method is not planned: it fails, or is untested."""
    said = "does not work for" if support.tried else "was not tried with"
    return f"{method} {said} {architecture}: {support.refused}"


def find_loader(config: Mapping[str, Any]) -> str:
    """Return the loader that takes a model whole, towers included; "" where there is none."""
    named = config.get("model_type")
    loaders = loaders_of(named) if isinstance(named, str) else {}
    architecture = architecture_of(config)
    if sees(config):
        whole = next((one for one in loaders if architecture in loaders[one]), "")
        return SEEING_LOADER if SEEING_LOADER in loaders else whole
    return USUAL_LOADER if USUAL_LOADER in loaders else next(iter(loaders), "")


def experts_in_one(
    model: ModelFiles, profile: ModelProfile, ignore: tuple[str, ...] | None = None
) -> str:
    """Return a tensor that holds all experts of a layer and would be quantized; "" for none."""
    found = [tensor.name for tensor in model.tensors if _holds_experts(tensor, profile.experts)]
    if not found:
        return ""
    ignored = ignored_modules(model, ignore)
    return next((name for name in found if name.removesuffix(".weight") not in ignored), "")


def _holds_experts(tensor: TensorInfo, experts: int) -> bool:
    name, shape = tensor.name, tensor.shape
    if len(shape) < 2 or name.endswith(NO_MATRIX) or LAYER.search(name) is None:
        return False
    if len(shape) == 3:
        return is_expert(tensor) or (shape[0] == experts > 1 and min(shape) >= LEAST_SIDE)
    return is_expert(tensor) and NUMBERED.search(name) is None


@cache
def read_table() -> QuantizableTable:
    """Read the file, references between its parts resolved."""
    table = read_shipped(TABLE)
    return QuantizableTable(
        methods=MappingProxyType(table["methods"]),
        calibrating_options={
            name: frozenset(options) for name, options in table["calibrating_options"].items()
        },
        folds=MappingProxyType(table["folds"]),
        rows={
            name: QuantizableRow(
                loader=row.get("loader", USUAL_LOADER),
                unfolded={m: tuple(sources) for m, sources in row.get("unfolded", {}).items()},
                refused=MappingProxyType(row.get("refused", {})),
                refused_when=MappingProxyType(row.get("refused_when", {})),
                tried=frozenset(row["tried"]) if "tried" in row else None,
            )
            for name, row in table["architectures"].items()
        },
        streams=frozenset(table["streams"]),
        streams_mixed=frozenset(table["streams"]) - frozenset(table["streams_whole"]),
        experts_apart=MappingProxyType(table["experts_apart"]),
    )


def _kind(table: QuantizableTable, method: str, options: Collection[str]) -> Kind:
    if table.calibrating_options.get(method, frozenset()).intersection(options):
        return "calibrated"
    return table.methods[method]


def _untried(kind: Kind) -> str:
    doing = "passes texts through the model" if kind == "calibrated" else "moves scales in it"
    return f"the method {doing}"

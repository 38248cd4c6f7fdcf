"""Folds: which module's output is divided by scales, and whose columns are multiplied by them.

The plan states them for each architecture (`packager/planning/data/quantizable.toml`), as
paths below one layer of the decoder; `*` stands for an expert's number.  Here they become
the names of modules of a loaded model.  llm-compressor's own tables are not asked: what
they lack it replaces by Llama's, which is wrong for every other order of norms.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from compressed_tensors.offload import disable_onloading
from compressed_tensors.utils import is_match
from packager_worker import Rejected


@dataclass(frozen=True)
class Fold:
    """One move of scales. What is divided and what is multiplied cancel out."""

    layer: str  # name of the decoder layer that both are in
    source: str  # a norm, or a matrix whose outputs are scaled
    consumers: tuple[str, ...]  # matrices that read the source's output, all of them


def find_folds(model: Any, stated: Mapping[str, Any], ignore: list[str]) -> list[Fold]:
    """Return the folds of every layer, in the order stated.

    A module that a layer lacks is passed over: dense and sparse layers, and layers with
    and without linear attention, share one statement.  A fold whose consumers all stay
    unquantized would help nobody and is left out.
    """
    modules = dict(model.named_modules())
    below = _by_layer(modules, stated["layers"])
    if not below:
        raise Rejected(f"the model has no layers at {stated['layers']!r}")
    with disable_onloading():  # shapes alone: weights on disk stay there
        found = [
            fold
            for move in stated["moves"]
            for layer, names in below.items()
            for fold in _in_layer(modules, layer, names, move)
            if any(not is_match(name, modules[name], ignore) for name in fold.consumers)
        ]
    if not found:
        raise Rejected("no module of the model is where the plan expects scales to move")
    return found


def _by_layer(modules: Mapping[str, Any], layers: str) -> dict[str, list[str]]:
    """Group the modules of the decoder by layer, as paths below it, in the model's order."""
    pattern = re.compile(rf"({re.escape(layers)}\.\d+)\.(.+)")
    found: dict[str, list[str]] = {}
    for name in modules:
        if match := pattern.fullmatch(name):
            found.setdefault(match[1], []).append(match[2])
    return found


def _in_layer(
    modules: Mapping[str, Any], layer: str, names: list[str], move: Mapping[str, Any]
) -> Iterator[Fold]:
    for source in _matching(move["from"], names):
        number = _number(move["from"], source)
        patterns = [path.replace("*", number) if number else path for path in move["into"]]
        consumers = [name for path in patterns for name in _matching(path, names)]
        fold = Fold(layer, f"{layer}.{source}", tuple(f"{layer}.{name}" for name in consumers))
        if consumers and _fits(modules, fold, move.get("rows", "all")):
            yield fold


def _matching(path: str, names: list[str]) -> list[str]:
    pattern = re.compile(re.escape(path).replace(r"\*", r"(\d+)"))
    return [name for name in names if pattern.fullmatch(name)]


def _number(path: str, name: str) -> str:
    """Return the expert's number that `*` stands for; empty where there is no `*`."""
    match = re.fullmatch(re.escape(path).replace(r"\*", r"(\d+)"), name)
    return match[1] if match and match.groups() else ""


def _fits(modules: Mapping[str, Any], fold: Fold, rows: str) -> bool:
    """Check that outputs meet inputs one to one: shared key-value heads repeat theirs."""
    weight = modules[fold.source].weight
    inputs = {modules[name].weight.shape[-1] for name in fold.consumers}
    parts = {"all": 1, "last of 2": 2, "last of 3": 3}[rows]
    return inputs == {weight.shape[0] // parts} and weight.shape[0] % parts == 0

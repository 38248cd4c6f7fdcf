"""What `--quantize-ignore` leaves whole, checked against the headers before anything is loaded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain

from packager.catalog.engine_layers import EXPERTS, find_layers
from packager.core.facts import Facts
from packager.core.findings import Finding
from packager.core.plan import Plan
from packager.core.suggestions import guess
from packager.estimate.sizing.left_out import (
    entries_left_out,
    find_indexers,
    packable,
    quantized_modules,
    select_ignored,
)
from packager.models.checkpoints.fused import PartlyQuantized, find_partly_quantized
from packager.models.checkpoints.selecting import CLASSES, MARK

MOST_NAMED = 3


def check_ignored(facts: Facts, plan: Plan) -> Iterator[Finding]:
    """Refuse entries that match nothing, split fused matrices, or leave none to quantize."""
    ignore = plan.quantizing.ignored
    yield from _check_indexers(facts, plan)
    if not ignore:
        return
    selected = select_ignored(facts.model, ignore)
    modules = [tensor.name.removesuffix(".weight") for tensor in packable(facts.model)]
    for entry, found in selected.items():
        if not found:
            yield _unmatched(entry, modules)
    left = frozenset(chain.from_iterable(selected.values()))
    quantized = [module for module, _ in quantized_modules(facts.model, ignore)]
    if modules and not quantized:
        message = "--quantize-ignore leaves every matrix of the layers out: nothing is quantized"
        hint = "name fewer modules, or use `--quantize none`"
        yield Finding("error", "quantize-ignore-all", message, hint)
        return
    layers = find_layers(plan.profile.architecture)
    plain = [module for module in modules if module in left]
    parts = list(find_partly_quantized(layers, quantized, plain))
    if parts:
        yield _partly(parts)


def _check_indexers(facts: Facts, plan: Plan) -> Iterator[Finding]:
    """Refuse to quantize what engines join with an indexer, which stays whole (MiniMax-M3)."""
    indexers = find_indexers(facts.model)
    if not indexers:
        return
    quantized = [module for module, _ in quantized_modules(facts.model, plan.quantizing.ignored)]
    parts = list(find_partly_quantized(find_layers(plan.profile.architecture), quantized, indexers))
    if parts:
        ends = "|".join(part.rpartition(".")[2] for part in parts[0].quantized)
        message = (
            "indexers stay unquantized, and engines make one matrix of them and others: "
            f"{_named(parts)}"
        )
        hint = f"leave the others out, too: `--quantize-ignore 're:.*\\.({ends})$'`"
        yield Finding("error", "quantize-ignore-fused", message, hint)


def _unmatched(entry: str, modules: Iterable[str]) -> Finding:
    message = f"{entry[:80]!r} of --quantize-ignore selects no module of the checkpoint"
    hint = "write a module's whole name, or `re:` and a pattern that matches from its beginning"
    if not entry.startswith(MARK) and entry not in CLASSES:
        inside = next((one for one in modules if f".{entry}." in f".{one}."), "")
        pattern = entry.replace(".", "\\.")
        close = f"write `re:(.*\\.)?{pattern}(\\..*)?$`" if inside else guess(entry, modules)
        hint = close or hint
    return Finding("warning", "quantize-ignore-unmatched", message, hint)


def _partly(parts: list[PartlyQuantized]) -> Finding:
    message = (
        "--quantize-ignore leaves a part of matrices unquantized that engines make one of: "
        f"{_named(parts)}"
    )
    first = parts[0]
    hint = "leave all of them out, or none"
    if not first.name.endswith(f".{EXPERTS}"):
        ends = "|".join(part.rpartition(".")[2] for part in (*first.plain, *first.quantized))
        hint += f": `--quantize-ignore 're:.*\\.({ends})$'`"
    return Finding("error", "quantize-ignore-fused", message, hint)


def _named(parts: list[PartlyQuantized]) -> str:
    named = "; ".join(one.words for one in parts[:MOST_NAMED])
    return named + (f" and {len(parts) - MOST_NAMED} more" if len(parts) > MOST_NAMED else "")


def entries_of(facts: Facts, plan: Plan) -> tuple[str, ...]:
    """Return entries of what stays whole: requested, and what the engine builds plain."""
    return entries_left_out(facts.model, plan.quantizing.ignored, facts.container.traits)

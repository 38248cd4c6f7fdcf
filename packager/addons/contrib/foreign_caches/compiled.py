"""A model's graphs, with what is known of how they came to be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from packager.addons.contrib.foreign_caches.neuron import CompilerCache, Module, modules_named
from packager.catalog.instances import find_instance
from packager.catalog.neuron import core_of_instance
from packager.core.errors import NotFound, UsageError
from packager.core.trees import Stated
from packager.optimize.cache.errors import CacheRefused
from packager.optimize.compile.neuron_keys import worker_of

DTYPES = {
    "bfloat16": "bf16",
    "float16": "fp16",
    "float32": "fp32",
    "bf16": "bf16",
    "fp16": "fp16",
    "fp32": "fp32",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    """A model's graphs, with what is known of how they came to be."""

    model: str
    layout: str  # whose: `optimum-neuron`, `neo`
    modules: tuple[Module, ...]
    compiler: str
    said: Mapping[str, Any]  # JSON pointers into the key document; nobody may say otherwise
    derived: Mapping[str, Any] = field(default_factory=dict)  # by rule; a statement wins


def choose_modules(
    cache: CompilerCache, stated: Stated, *, alone: bool, model: str
) -> tuple[Module, ...]:
    """Choose the graphs of a model. A graph too many is never loaded; one too few is compiled."""
    if stated.modules or stated.logs:
        texts = [path.read_text("utf-8", "replace") for path in stated.logs]
        wanted = frozenset(stated.modules) | modules_named(texts)
        chosen = tuple(one for one in cache.modules if one.name in wanted)
        lost = sorted(wanted - {one.name for one in chosen})
        if lost:
            raise NotFound(
                f"graph {lost[0]} is not among the sound ones of {str(cache.directory)!r}",
                hint="take all that the log names from the machine that compiled them",
            )
        return chosen
    if not alone and not stated.all_modules:
        raise UsageError(
            f"{model}: the tree does not say which of its {len(cache.modules)} graphs are its",
            hint="add --log FILE of its compilation, --module MODULE_…, or --all-modules",
        )
    return cache.modules


def make_compiled(
    model: str,
    layout: str,
    cache: CompilerCache,
    modules: tuple[Module, ...],
    said: Mapping[str, Any],
    derived: Mapping[str, Any],
    stated: Stated,
) -> Compiled:
    """Add what the graphs themselves and the options tell; raise where they do not agree."""
    if not modules:
        raise CacheRefused(
            f"{model}: no graph of {str(cache.directory)!r} is for it",
            hint="take a tree in which its compilation ended well",
        )
    fields = dict(said)
    for pointer, values in (
        ("/target/arch", {one.target for one in modules}),
        ("/target/logical_core_size", {one.logical_core_size for one in modules}),
        ("/precision/auto_cast", {one.auto_cast for one in modules}),
        ("/precision/auto_cast_dtype", {one.auto_cast_dtype for one in modules}),
    ):
        known = values - {None}
        if len(known) > 1 or (known and fields.get(pointer, *known) not in known):
            have = ", ".join(
                sorted(map(str, {*known, *([fields[pointer]] if pointer in fields else ())}))
            )
            raise CacheRefused(
                f"{model}: its graphs do not agree on {pointer}: {have}",
                hint="choose graphs with --log or --module",
            )
        if known and None not in values:
            fields[pointer] = next(iter(known))
    for pointer, value in _of_options(stated).items():
        if fields.setdefault(pointer, value) != value:
            raise UsageError(
                f"{model}: {pointer} is stated as {value!r}, but is {fields[pointer]!r} in the "
                "tree",
                hint="leave the option out, or take the tree that was meant",
            )
    lines = sorted({" ".join(one.flags) for one in modules if one.flags is not None})
    own = {"/toolchain/worker": worker_of(layout), **derived}
    if all(one.flags is not None for one in modules):
        own["/invocation/compiler_args"] = [line for line in lines if line]
    return Compiled(
        model=model,
        layout=layout,
        modules=modules,
        compiler=cache.version,
        said=fields,
        derived=own,
    )


def _of_options(stated: Stated) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if stated.logical_core_size is not None:
        found["/target/logical_core_size"] = stated.logical_core_size
    if stated.instance is not None:
        core = core_of_instance(find_instance(stated.instance).name)
        if core is None:
            raise UsageError(
                f"{stated.instance!r} has no NeuronCores", hint="name an inf2, trn1 or trn2"
            )
        found["/target/arch"] = core.arch
    return found

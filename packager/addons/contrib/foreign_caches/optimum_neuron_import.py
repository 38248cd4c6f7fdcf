"""Models of optimum-neuron's registry."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from packager.addons.contrib.foreign_caches.compiled import (
    DTYPES,
    Compiled,
    choose_modules,
    make_compiled,
)
from packager.addons.contrib.foreign_caches.optimum_neuron import Registered, read_registry
from packager.addons.contrib.foreign_caches.stated import read_json
from packager.catalog.neuron import core_of_instance
from packager.core.errors import UsageError
from packager.core.trees import Stated
from packager.optimize.cache.errors import CacheRefused
from packager.optimize.compile.neuron_keys import graph_fields, sharding_of
from packager.optimize.steps.configs import NO_GRAPH

_SHOWN = 5  # models of a registry, by name
_ENGINE_ARGS = (
    "capacity_factor",
    "continuous_batching",
    "fused_qkv",
    "glu_mlp",
    "n_active_tokens",
    "output_logits",
)


def models_of_registry(root: Path, stated: Stated) -> tuple[list[Compiled], list[tuple[str, str]]]:
    """Return what was compiled of each requested model, and what cannot be used."""
    registry = read_registry(root)
    entries = [one for one in registry.entries if stated.model in (None, one.model)]
    if registry.caches and not entries:
        have = sorted({one.model for one in registry.entries})
        named = f"; it has {', '.join(have[:_SHOWN])}" if have else ""
        raise CacheRefused(
            "the registry of the tree names no "
            + (f"model {stated.model!r}{named}" if stated.model else "model")
            + (
                f" ({registry.left_out[0][0]}: {registry.left_out[0][1]})"
                if registry.left_out and not have
                else ""
            ),
            hint="import the whole cache directory, with 0_REGISTRY; or use --from neo",
        )
    return [_registered(one, registry.entries, stated) for one in entries], list(registry.left_out)


def _registered(one: Registered, everything: Sequence[Registered], stated: Stated) -> Compiled:
    _refuse_what_is_not_told(one, stated)
    said = _said(one)
    modules = choose_modules(one.cache, stated, alone=_is_alone(one, everything), model=one.model)
    if (arch := said.get("/target/arch")) is not None:
        modules = tuple(module for module in modules if module.target in (None, arch))
    derived = _derived(one, said)
    config = _whole_config(one, stated)
    derived["/graph/architecture"] = graph_fields(config)
    if spread := sharding_of(config, said["/parallelism/tp"]):
        derived["/parallelism/sharding"] = spread
    return make_compiled(one.model, "optimum-neuron", one.cache, modules, said, derived, stated)


def _refuse_what_is_not_told(one: Registered, stated: Stated) -> None:
    if one.neuron.get("inline_weights_to_neff"):
        raise CacheRefused(
            f"{one.model}: its graphs have weights inside, and the tree does not say which",
            hint="compile it without inlined weights",
        )
    for name in ("auto_map", "quantization_config"):
        if one.config.get(name):
            raise CacheRefused(
                f"{one.model}: its config has {name!r}, whose files are not in the tree",
                hint="compile it with packager, which knows what goes in",
            )
    if _count(one, "speculation_length", 0) and stated.document is None:
        raise UsageError(
            f"{one.model}: it was compiled to check drafted tokens, and the tree does not say "
            "which method drafts them",
            hint="add --as FILE with the key document that shall find it",
        )


def _said(one: Registered) -> dict[str, Any]:
    """Return the values of the key that the registry states, by JSON pointer."""
    neuron = one.neuron
    batch, length, tp = (
        _count(one, name) for name in ("batch_size", "sequence_length", "tp_degree")
    )
    pp, ep = (_count(one, name, 1) for name in ("pp_degree", "ep_degree"))
    dtype = DTYPES.get(str(neuron.get("torch_dtype")))
    on_device = neuron.get("on_device_sampling") is True
    said: dict[str, Any] = {
        "/shape/max_batch": _count(one, "max_batch_size", batch),
        "/shape/context_batch": 1 if neuron.get("continuous_batching") is True else batch,
        "/shape/token_batch": batch,
        "/shape/max_input_tokens": _count(one, "max_context_length", length),
        "/shape/max_total_tokens": length,
        "/shape/prefill_chunk_tokens": _count(one, "prefill_chunk_size", 0) or None,
        "/parallelism/tp": tp,
        "/parallelism/pp": pp,
        "/parallelism/ep": ep,
        "/parallelism/world": tp * pp * ep,
        "/parallelism/local_ranks": _count(one, "local_ranks_size", tp * pp * ep),
        "/parallelism/start_rank": _count(one, "start_rank_id", 0),
        "/sampling/on_device": on_device,
        "/sampling/max_top_k": _count(one, "max_topk", 256) if on_device else None,
    }
    if isinstance(arch := neuron.get("target"), str):
        said["/target/arch"] = _arch_of(arch)
    if dtype:
        said |= {"/precision/dtype": dtype, "/precision/kv_dtype": dtype}
    if tokens := _count(one, "speculation_length", 0):
        said["/speculation/tokens"] = tokens
    return said


def _derived(one: Registered, said: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of the key that follow from what the registry states."""
    start, local = said["/parallelism/start_rank"], said["/parallelism/local_ranks"]
    stated = {
        name: json.dumps(one.neuron[name]).strip('"')
        for name in _ENGINE_ARGS
        if one.neuron.get(name) is not None
    }
    prompt = said["/shape/prefill_chunk_tokens"] or said["/shape/max_input_tokens"]
    return {
        "/shape/context_buckets": [prompt],
        "/shape/token_buckets": [said["/shape/max_total_tokens"]],
        "/precision/logits_dtype": "fp32",
        "/parallelism/ranks": list(range(start, start + local)),
        "/invocation/engine_args": stated | {"task": one.task},
        "/toolchain/packages": _packages(one),
    }


def _whole_config(one: Registered, stated: Stated) -> Mapping[str, Any]:
    """Return the complete config: the registry's leaves out default values.

    A whole one, from --config, must agree with what the registry has.
    """
    if stated.config is None:
        return one.config
    whole = read_json(stated.config)
    for name, value in one.config.items():
        if name not in NO_GRAPH and whole.get(name, value) != value:
            raise UsageError(
                f"{one.model}: {name} is {json.dumps(value)} in the tree, "
                f"and {json.dumps(whole[name])} in {str(stated.config)!r}",
                hint="name the config.json of the model that was compiled",
            )
    return whole


def _packages(one: Registered) -> list[dict[str, Any]]:
    packages = [{"name": "neuronx-cc", "version": one.cache.version, "digest": None}]
    version = one.neuron.get("optimum_neuron_version")
    if isinstance(version, str):
        packages.append({"name": "optimum-neuron", "version": version, "digest": None})
    return packages


def _is_alone(one: Registered, everything: Sequence[Registered]) -> bool:
    return sum(other.cache.directory == one.cache.directory for other in everything) == 1


def _count(one: Registered, name: str, otherwise: int | None = None) -> int:
    value = one.neuron.get(name)
    if value is None and otherwise is not None:
        return otherwise
    if type(value) is not int or value < 0:
        raise CacheRefused(f"{one.model}: its registry entry says that {name} is {value!r}")
    return value


def _arch_of(target: str) -> str:
    """Return the architecture of a target, which older versions named after the instance."""
    core = core_of_instance(target)
    return core.arch if core else target

"""Models that SageMaker Neo compiled."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from packager.addons.contrib.foreign_caches.compiled import (
    DTYPES,
    Compiled,
    choose_modules,
    make_compiled,
)
from packager.addons.contrib.foreign_caches.neo import NeoOutput, find_neo_outputs
from packager.addons.contrib.foreign_caches.neuron import CompilerCache, Module
from packager.addons.contrib.foreign_caches.stated import read_json
from packager.core.trees import Stated
from packager.optimize.cache.errors import CacheRefused
from packager.optimize.compile.neuron_keys import graph_fields, sharding_of

_NEO_NUMBERS = (
    (("option.tensor_parallel_degree",), ("/parallelism/tp",)),
    (("option.n_positions", "option.max_model_len"), ("/shape/max_total_tokens",)),
    (
        ("option.max_rolling_batch_size", "option.batch_size", "batch_size"),
        ("/shape/max_batch",),
    ),
)
_NEO_SAID = {name for names, _ in _NEO_NUMBERS for name in names} | {"option.dtype"}


def models_of_neo(root: Path, stated: Stated) -> tuple[list[Compiled], list[tuple[str, str]]]:
    """Return what was compiled of each model, and what cannot be used."""
    outputs = find_neo_outputs(root)
    found: list[Compiled] = []
    left_out: list[tuple[str, str]] = []
    for output in outputs:
        for cache in output.caches:
            left_out += cache.left_out
            if modules := choose_modules(cache, stated, alone=True, model=str(output.place)):
                found.append(_neo(output, cache, modules, stated))
    return found, left_out


def _neo(
    output: NeoOutput, cache: CompilerCache, modules: tuple[Module, ...], stated: Stated
) -> Compiled:
    given = output.properties
    said: dict[str, Any] = {}
    derived: dict[str, Any] = {
        "/toolchain/packages": [{"name": "neuronx-cc", "version": cache.version, "digest": None}],
        "/invocation/engine_args": {
            name: value
            for name, value in sorted(given.items())
            if name.startswith("option.")
            and value
            and "/" not in value
            and name not in _NEO_SAID
            and not name.endswith(("model_id", "s3url", "token"))
        },
    }
    for names, pointers in _NEO_NUMBERS:
        for name in names:
            if given.get(name, "").isdigit():
                said |= dict.fromkeys(pointers, int(given[name]))
                break
    if "/shape/max_batch" in said:
        derived["/shape/token_batch"] = said["/shape/max_batch"]
        derived["/shape/context_batch"] = 1 if _continuous(given) else said["/shape/max_batch"]
    dtype = DTYPES.get(given.get("option.dtype", "").removeprefix("torch."))
    if dtype:
        said |= {"/precision/dtype": dtype, "/precision/kv_dtype": dtype}
    if given.get("option.quantize"):
        raise CacheRefused(
            f"{str(output.place)!r} was compiled for weights quantized by "
            f"{given['option.quantize']!r}, of which the tree says no more",
            hint="compile it with packager, which knows what goes in",
        )
    config_file = stated.config or output.config
    if config_file is not None:
        config = read_json(config_file)
        derived["/graph/architecture"] = graph_fields(config)
        if (tp := said.get("/parallelism/tp")) and (spread := sharding_of(config, tp)):
            derived["/parallelism/sharding"] = spread
    if tp := said.get("/parallelism/tp"):
        derived |= {
            "/parallelism/world": tp,
            "/parallelism/local_ranks": tp,
            "/parallelism/ranks": list(range(tp)),
        }
    name = stated.model or output.place.parent.name or "model"
    return make_compiled(name, "neo", cache, modules, said, derived, stated)


def _continuous(given: Mapping[str, str]) -> bool:
    return given.get("option.rolling_batch", "disable") not in ("", "disable")

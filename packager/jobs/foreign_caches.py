"""Entries of the artifact cache from what other tools have compiled.

What the tree says is taken, what follows from its form is filled in, and what
neither tells must be stated, or nothing is imported: a key with a guess in it
would one day be a wrong hit.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from artifact_cache.entry import Entry, Writer
from artifact_cache.files import describe, seal
from artifact_cache.key import KeyDocument, key_of, parse_document, plain
from artifact_cache.stores.archive import Imported
from packager import __version__
from packager.adapters.cache_errors import CacheRefused
from packager.adapters.foreign_caches.neo import NeoOutput, find_neo_outputs
from packager.adapters.foreign_caches.neuron import CompilerCache, Module, modules_named
from packager.adapters.foreign_caches.optimum_neuron import Registered, read_registry
from packager.adapters.sources.strict_json import NotStrict, parse_json
from packager.catalog.instances import find_instance
from packager.errors import NotFound, UsageError
from packager.jobs.cache import CachePlace
from packager.techniques.neuron_keys import (
    KNOWN,
    NO_GRAPH,
    contradictions,
    graph_digest,
    sharding_of,
    unknown_in,
    with_values,
    worker_of,
)

_ARCHS = {"inf2": "trn1", "trn1": "trn1", "trn1n": "trn1", "trn2": "trn2", "trn3": "trn3"}
_DTYPES = {
    "bfloat16": "bf16",
    "float16": "fp16",
    "float32": "fp32",
    "bf16": "bf16",
    "fp16": "fp16",
    "fp32": "fp32",
}
_SHOWN = 5  # graphs that are left out, by name


@dataclass(frozen=True, slots=True, kw_only=True)
class Stated:
    """What the user says beside the tree."""

    instance: str | None = None
    logical_core_size: int | None = None
    model: str | None = None
    modules: tuple[str, ...] = ()
    logs: tuple[Path, ...] = ()
    all_modules: bool = False
    config: Path | None = None
    stated: tuple[str, ...] = ()  # `/POINTER=JSON`
    document: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedTree:
    """What an import did, and what people should know of it."""

    imported: Imported
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    """A model's graphs, with what is known of how they came to be."""

    model: str
    layout: str  # whose: `optimum-neuron`, `neo`
    modules: tuple[Module, ...]
    compiler: str
    said: Mapping[str, Any]  # JSON pointers into the key document; nobody may say otherwise
    derived: Mapping[str, Any] = field(default_factory=dict)  # by rule; a statement wins


def import_tree(layout: str, root: Path, place: CachePlace, stated: Stated) -> ImportedTree:
    """Publish what a tree holds, as far as it can be given a key."""
    read = _of_registry if layout == "optimum-neuron" else _of_neo
    found, left_out = read(root, stated)
    if not found:
        raise CacheRefused(
            f"there is nothing to import in {str(root)!r}"
            + (f": {left_out[0][0]}: {left_out[0][1]}" if left_out else ""),
            hint="it should hold neuronxcc-…/MODULE_… with model.neff and model.done",
        )
    documents = [document_of(one, stated) for one in found]  # all, before anything is kept
    published: list[Entry] = []
    known: list[Entry] = []
    for one, document in zip(found, documents, strict=True):
        with place.scratch() as scratch:
            entry, is_new = _publish(one, document, scratch, place)
        (published if is_new else known).append(entry)
    return ImportedTree(
        imported=Imported(published=tuple(published), known=tuple(known)),
        notes=tuple(_notes(left_out)),
    )


def document_of(compiled: Compiled, stated: Stated) -> KeyDocument:
    """Give the key document of a model's graphs, or say what is missing or does not agree."""
    own = _own_words(stated)
    base: Mapping[str, Any] = KNOWN
    if stated.document is not None:
        base = _read_document(stated.document)
        architecture = "/graph/architecture"
        agreed = dict(compiled.said)
        if architecture in compiled.derived and architecture not in own:
            agreed[architecture] = compiled.derived[architecture]
        _refuse_contradiction(compiled, base, agreed)
    else:
        base = with_values(base, compiled.derived)
        base = with_values(base, compiled.said)
    try:
        made = with_values(base, own)
    except KeyError as error:
        raise UsageError(
            f"a key document of compiled graphs has no {error.args[0]}",
            hint="write --state /shape/max_batch=8; artifact_cache/README.md names the fields",
        ) from error
    _refuse_contradiction(compiled, made, compiled.said)
    if missing := list(unknown_in(made)):
        raise UsageError(
            f"{compiled.model}: the tree does not say {', '.join(missing)}",
            hint="; ".join(_ways_to_say(missing)),
        )
    try:
        return parse_document(made)
    except (ValidationError, ValueError) as error:
        reason = error.errors()[0] if isinstance(error, ValidationError) else None
        where = "/".join(map(str, reason["loc"])) if reason else ""
        text = reason["msg"] if reason else str(error)
        raise UsageError(f"{compiled.model}: {where}: {text}") from error


# --- optimum-neuron


def _of_registry(root: Path, stated: Stated) -> tuple[list[Compiled], list[tuple[str, str]]]:
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
    neuron = one.neuron
    said: dict[str, Any] = {}
    if neuron.get("inline_weights_to_neff"):
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
    modules = _chosen(one.cache, stated, alone=_is_alone(one, everything), model=one.model)
    arch = neuron.get("target")
    if isinstance(arch, str):
        said["/target/arch"] = _ARCHS.get(arch, arch)
        modules = tuple(
            module for module in modules if module.target in (None, said["/target/arch"])
        )
    batch, length, tp = (
        _count(one, name) for name in ("batch_size", "sequence_length", "tp_degree")
    )
    pp, ep = (_count(one, name, 1) for name in ("pp_degree", "ep_degree"))
    dtype = _DTYPES.get(str(neuron.get("torch_dtype")))
    prompt = _count(one, "max_context_length", length)
    chunk = _count(one, "prefill_chunk_size", 0)
    start = _count(one, "start_rank_id", 0)
    local = _count(one, "local_ranks_size", tp * pp * ep)
    continuous = neuron.get("continuous_batching") is True
    on_device = neuron.get("on_device_sampling") is True
    said |= {
        "/shape/max_batch": _count(one, "max_batch_size", batch),
        "/shape/context_batch": 1 if continuous else batch,
        "/shape/token_batch": batch,
        "/shape/max_input_tokens": prompt,
        "/shape/max_total_tokens": length,
        "/shape/prefill_chunk_tokens": chunk or None,
        "/parallelism/tp": tp,
        "/parallelism/pp": pp,
        "/parallelism/ep": ep,
        "/parallelism/world": tp * pp * ep,
        "/parallelism/local_ranks": local,
        "/parallelism/start_rank": start,
        "/sampling/on_device": on_device,
        "/sampling/max_top_k": _count(one, "max_topk", 256) if on_device else None,
    }
    if dtype:
        said |= {"/precision/dtype": dtype, "/precision/kv_dtype": dtype}
    if _count(one, "speculation_length", 0):
        said["/speculation/tokens"] = _count(one, "speculation_length", 0)
        if stated.document is None:
            raise UsageError(
                f"{one.model}: it was compiled to check drafted tokens, and the tree does not say "
                "which method drafts them",
                hint="add --as FILE with the key document that shall find it",
            )
    derived: dict[str, Any] = {
        "/shape/context_buckets": [chunk or prompt],
        "/shape/token_buckets": [length],
        "/precision/logits_dtype": "fp32",
        "/parallelism/ranks": list(range(start, start + local)),
        "/invocation/engine_args": {
            name: json.dumps(neuron[name]).strip('"')
            for name in (
                "capacity_factor",
                "continuous_batching",
                "fused_qkv",
                "glu_mlp",
                "n_active_tokens",
                "output_logits",
            )
            if neuron.get(name) is not None
        }
        | {"task": one.task},
        "/toolchain/packages": _packages(one),
    }
    config = _whole_config(one, stated)
    derived["/graph/architecture"] = graph_digest(config)
    if spread := sharding_of(config, tp):
        derived["/parallelism/sharding"] = spread
    return _compiled(one.model, "optimum-neuron", one.cache, modules, said, derived, stated)


def _whole_config(one: Registered, stated: Stated) -> Mapping[str, Any]:
    """Give the model's config: the registry's leaves out what is at its default.

    A whole one, from --config, must agree with what the registry has.
    """
    if stated.config is None:
        return one.config
    whole = _read_json(stated.config)
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


# --- Neo


def _of_neo(root: Path, stated: Stated) -> tuple[list[Compiled], list[tuple[str, str]]]:
    outputs = find_neo_outputs(root)
    found: list[Compiled] = []
    left_out: list[tuple[str, str]] = []
    for output in outputs:
        for cache in output.caches:
            left_out += cache.left_out
            if modules := _chosen(cache, stated, alone=True, model=str(output.place)):
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
    dtype = _DTYPES.get(given.get("option.dtype", "").removeprefix("torch."))
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
        config = _read_json(config_file)
        derived["/graph/architecture"] = graph_digest(config)
        if (tp := said.get("/parallelism/tp")) and (spread := sharding_of(config, tp)):
            derived["/parallelism/sharding"] = spread
    if tp := said.get("/parallelism/tp"):
        derived |= {
            "/parallelism/world": tp,
            "/parallelism/local_ranks": tp,
            "/parallelism/ranks": list(range(tp)),
        }
    name = stated.model or output.place.parent.name or "model"
    return _compiled(name, "neo", cache, modules, said, derived, stated)


_NEO_NUMBERS = (
    (("option.tensor_parallel_degree",), ("/parallelism/tp",)),
    (("option.n_positions", "option.max_model_len"), ("/shape/max_total_tokens",)),
    (
        ("option.max_rolling_batch_size", "option.batch_size", "batch_size"),
        ("/shape/max_batch",),
    ),
)
_NEO_SAID = {name for names, _ in _NEO_NUMBERS for name in names} | {"option.dtype"}


def _continuous(given: Mapping[str, str]) -> bool:
    return given.get("option.rolling_batch", "disable") not in ("", "disable")


# --- both


def _chosen(cache: CompilerCache, stated: Stated, *, alone: bool, model: str) -> tuple[Module, ...]:
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


def _compiled(
    model: str,
    layout: str,
    cache: CompilerCache,
    modules: tuple[Module, ...],
    said: Mapping[str, Any],
    derived: Mapping[str, Any],
    stated: Stated,
) -> Compiled:
    if not modules:
        raise CacheRefused(
            f"{model}: no graph of {str(cache.directory)!r} is for it",
            hint="take a tree in which its compilation ended well",
        )
    told = dict(said)
    for pointer, values in (
        ("/target/arch", {one.target for one in modules}),
        ("/target/logical_core_size", {one.logical_core_size for one in modules}),
        ("/precision/auto_cast", {one.auto_cast for one in modules}),
        ("/precision/auto_cast_dtype", {one.auto_cast_dtype for one in modules}),
    ):
        known = values - {None}
        if len(known) > 1 or (known and told.get(pointer, *known) not in known):
            have = ", ".join(
                sorted(map(str, {*known, *([told[pointer]] if pointer in told else ())}))
            )
            raise CacheRefused(
                f"{model}: its graphs do not agree on {pointer}: {have}",
                hint="choose graphs with --log or --module",
            )
        if known and None not in values:
            told[pointer] = next(iter(known))
    for pointer, value in _of_options(stated).items():
        if told.setdefault(pointer, value) != value:
            raise UsageError(
                f"{model}: {pointer} is said to be {value!r}, and is {told[pointer]!r} in the tree",
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
        said=told,
        derived=own,
    )


def _of_options(stated: Stated) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if stated.logical_core_size is not None:
        found["/target/logical_core_size"] = stated.logical_core_size
    if stated.instance is not None:
        family = find_instance(stated.instance).name.removeprefix("ml.").partition(".")[0]
        if family not in _ARCHS:
            raise UsageError(
                f"{stated.instance!r} has no NeuronCores", hint="name an inf2, trn1 or trn2"
            )
        found["/target/arch"] = _ARCHS[family]
    return found


def _publish(
    one: Compiled, document: KeyDocument, scratch: Path, place: CachePlace
) -> tuple[Entry, bool]:
    """Copy the graphs, so that the tree stays its owner's, and publish them."""
    files = scratch / "files"
    files.mkdir()
    for module in one.modules:
        for path, source in module.files:
            target = files / path
            target.parent.mkdir(parents=True, exist_ok=True)
            with _opened(source) as reader, target.open("xb") as writer:
                shutil.copyfileobj(reader, writer, 1024 * 1024)
    entry = Entry(
        key=key_of(document),
        keydoc=plain(document),
        outputs=describe(seal(files, document.kind)),
        writer=Writer(
            nonce=secrets.token_hex(16),
            builder_id=f"imported from {one.layout}",
            version=__version__,
        ),
        built_at=int(time.time()),
        build_s=0.0,  # nobody wrote down how long it took
        toolchain_report={"neuronx-cc": one.compiler},
        labels={"model": one.model[:1000], "imported_from": one.layout},
    )
    return entry, place.publish(entry, files)


def _opened(path: Path) -> Any:
    return os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb")


def _own_words(stated: Stated) -> dict[str, Any]:
    found = {}
    for text in stated.stated:
        pointer, equals, value = text.partition("=")
        if not equals or not pointer.startswith("/"):
            raise UsageError(
                f"--state {text!r} is not /POINTER=JSON", hint="such as --state /shape/max_batch=8"
            )
        try:
            found[pointer] = json.loads(value)
        except ValueError:
            found[pointer] = value  # a plain word needs no quotes
    return found


def _refuse_contradiction(
    compiled: Compiled, document: Mapping[str, Any], said: Mapping[str, Any]
) -> None:
    for one in contradictions(document, said):
        raise UsageError(
            f"{compiled.model}: {one.pointer} is {json.dumps(one.wanted)} in the tree, "
            f"and said to be {json.dumps(one.found, default=str)}",
            hint="import it under a key document that agrees with it",
        )


def _ways_to_say(missing: Sequence[str]) -> Iterator[str]:
    if "/target/logical_core_size" in missing:
        yield "add --logical-core-size N"
    if "/target/arch" in missing:
        yield "add --instance TYPE"
    if "/graph/architecture" in missing:
        yield "add --config FILE, the model's config.json"
    others = [one for one in missing if not one.startswith(("/target/", "/graph/"))]
    if others:
        yield f"add --state {others[0]}=JSON, or --as FILE with the whole key document"


def _read_document(path: Path) -> dict[str, Any]:
    found = _read_json(path)
    found = found.get("keydoc", found.get("document", found))  # of `show`, of `explain --last`
    try:
        return plain(parse_document(found))
    except (ValidationError, ValueError, AttributeError) as error:
        raise UsageError(
            f"{str(path)!r} is no key document",
            hint="`packager cache show KEY --format json` and `explain --last` have some",
        ) from error


def _read_json(path: Path) -> dict[str, Any]:
    try:
        found = parse_json(path.read_bytes())
    except (OSError, NotStrict) as error:
        raise NotFound(f"cannot read {str(path)!r}: {error}", hint="name a JSON file") from error
    if isinstance(found, list) and len(found) == 1:
        found = found[0]
    if not isinstance(found, dict):
        raise UsageError(f"{str(path)!r} holds no JSON object, or several")
    return found


def _notes(left_out: Sequence[tuple[str, str]]) -> Iterator[str]:
    for name, reason in left_out[:_SHOWN]:
        yield f"left out: {name} {reason}"
    if len(left_out) > _SHOWN:
        yield f"left out: {len(left_out) - _SHOWN} more"

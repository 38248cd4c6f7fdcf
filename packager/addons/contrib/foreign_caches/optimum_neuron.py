"""optimum-neuron's registry: which models a tree of compiled graphs is for.

    neuronxcc-<version>/0_REGISTRY/<optimum-neuron>/<digest>/<hash>.json

`<hash>` is over the file, and `<digest>` over the model's config in it: both
are compared, so a file that was changed or moved is refused.  Directories by
model name beside the digests hold the same files again and are not read.
"""

from __future__ import annotations

import hashlib
import json
import re
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packager.addons.contrib.foreign_caches.neuron import (
    MAX_SMALL_BYTES,
    CompilerCache,
    find_compiler_caches,
)
from packager.core.documents import NotStrict, parse_json

_DIGEST = re.compile(r"[0-9a-f]{64}")
_FILE = re.compile(r"(?P<hash>[0-9a-f]{20})\.json")
_NO_CONFIG = ("neuron", "_entry_class", "_model_id", "_task")


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    """A model that somebody compiled, as the registry has it."""

    cache: CompilerCache
    hash: str
    model: str
    task: str
    config: Mapping[str, Any]  # of the model, without what is at its default
    neuron: Mapping[str, Any]  # how it was compiled


@dataclass(frozen=True, slots=True, kw_only=True)
class Registry:
    """Contents of an optimum-neuron cache."""

    caches: tuple[CompilerCache, ...]
    entries: tuple[Registered, ...]
    left_out: tuple[tuple[str, str], ...]  # path and reason


def read_registry(root: Path) -> Registry:
    """Read a tree: its graphs, and the models they are registered for."""
    caches = find_compiler_caches(root)
    entries: list[Registered] = []
    left_out: list[tuple[str, str]] = []
    for cache in caches:
        left_out += cache.left_out
        for path in _registry_files(cache.directory / "0_REGISTRY"):
            try:
                entries.append(_read_entry(cache, path))
            except ValueError as error:
                left_out.append((str(path.relative_to(cache.directory)), str(error)))
    return Registry(caches=caches, entries=tuple(entries), left_out=tuple(left_out))


def _registry_files(root: Path) -> Iterator[Path]:
    if root.is_symlink():
        return
    for path in sorted(root.glob("*/*/*.json")):
        if _DIGEST.fullmatch(path.parent.name) and _FILE.fullmatch(path.name):
            yield path


def _read_entry(cache: CompilerCache, path: Path) -> Registered:
    data = _bytes_of(path)
    if hashlib.sha512(data).hexdigest()[:20] != path.stem:
        raise ValueError("its name is not the hash of what it holds")
    try:
        plain = parse_json(data)
    except NotStrict as error:
        raise ValueError(str(error)) from None
    if not isinstance(plain, dict) or plain.get("_entry_class") != "SingleModelCacheEntry":
        raise ValueError("it is not about a single model")
    neuron, model, task = (plain.get(name) for name in ("neuron", "_model_id", "_task"))
    if not (isinstance(neuron, dict) and isinstance(model, str) and isinstance(task, str)):
        raise ValueError("it does not say how the model was compiled")
    config = {name: value for name, value in plain.items() if name not in _NO_CONFIG}
    if _architecture(config, task) != path.parent.name:
        raise ValueError("its directory is not the digest of its config")
    compiler = neuron.get("neuronxcc_version")
    if not isinstance(compiler, str) or compiler not in (
        cache.version,
        cache.version.partition("+")[0],
    ):
        raise ValueError(f"it was compiled by {compiler!r}, and lies with {cache.version}")
    return Registered(
        cache=cache, hash=path.stem, model=model, task=task, config=config, neuron=neuron
    )


def _architecture(config: Mapping[str, Any], task: str) -> str:
    """Return the digest that optimum-neuron files a model under."""
    named = {"model_type": config.get("model_type"), "task": task, "config": config}
    return hashlib.sha256(json.dumps(named, sort_keys=True).encode()).hexdigest()


def _bytes_of(path: Path) -> bytes:
    """Read a small file; raises ValueError for a link, or a file below one."""
    for place in (path, path.parent, path.parent.parent):
        if place.is_symlink():
            raise ValueError("it is a link, or lies below one")
    try:
        if not stat.S_ISREG(path.lstat().st_mode):
            raise ValueError("it is not a file")
        with path.open("rb") as file:
            data = file.read(MAX_SMALL_BYTES + 1)
    except OSError as error:
        raise ValueError((error.strerror or str(error)).lower()) from None
    if len(data) > MAX_SMALL_BYTES:
        raise ValueError("it is too large")
    return data

"""The way every model source goes: names, small files, weights.

Each stage refuses what it can before the next one costs anything; for a hub,
`fetch` is a download.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

from packager.adapters.sources.contents import (
    Shards,
    check_small_file,
    find_shards,
    read_config,
    read_tensors,
)
from packager.adapters.sources.names import check_distinct, check_path
from packager.adapters.sources.rules import Choice, Entry, choose_files, refuse_incomplete, role_of
from packager.core.image import FileRange
from packager.core.model import ModelFile, ModelFiles, ModelRef

Fetch = Callable[[tuple[str, ...]], Mapping[str, Path]]  # paths in the model → absolute real paths


def take_model(ref: ModelRef, listing: Mapping[str, Entry], fetch: Fetch) -> ModelFiles:
    """Choose, fetch and check the files of a model; raise `ModelRefused` with the reason."""
    for path in listing:
        check_path(path)
    choice = choose_files(listing)
    check_distinct(choice.small + choice.candidates)
    refuse_incomplete(choice)

    small = fetch(choice.small)
    for path, real in small.items():
        check_small_file(path, real)
    config = read_config(small)
    shards = find_shards(small, choice.candidates)

    weights = fetch(shards.files)
    tensors = read_tensors(shards, weights)

    taken = {**small, **weights}
    return ModelFiles(
        ref=ref,
        files=tuple(_model_file(path, taken[path], listing[path]) for path in sorted(taken)),
        config=MappingProxyType(dict(config)),
        tensors=tensors,
        left_out=MappingProxyType({**choice.left_out, **_not_served(choice, shards)}),
    )


def _not_served(choice: Choice, shards: Shards) -> Mapping[str, str]:
    """Explain the safetensors files that are no part of the model."""
    reason = (
        "weights that the model's index does not name"
        if shards.weight_map
        else "weights beside 'model.safetensors', which is the one served"
    )
    return {path: reason for path in choice.candidates if path not in shards.files}


def _model_file(path: str, real: Path, entry: Entry) -> ModelFile:
    return ModelFile(
        path=unicodedata.normalize("NFC", path),
        role=role_of(path),
        content=FileRange(path=str(real), offset=0, length=entry.size),
        sha256=entry.sha256,
    )

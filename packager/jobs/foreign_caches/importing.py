"""Publishing what a tree of another tool holds."""

from __future__ import annotations

import os
import secrets
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from artifact_cache.entry import Entry, Writer
from artifact_cache.files import describe, seal
from artifact_cache.key import KeyDocument, key_of, plain
from artifact_cache.stores.archive import Imported
from packager import __version__
from packager.adapters.cache_errors import CacheRefused
from packager.jobs.cache import CachePlace
from packager.jobs.foreign_caches.compiled import Compiled
from packager.jobs.foreign_caches.documents import document_of
from packager.jobs.foreign_caches.neo import models_of_neo
from packager.jobs.foreign_caches.optimum_neuron import models_of_registry
from packager.jobs.foreign_caches.stated import Stated

_SHOWN = 5  # graphs that are left out, by name


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedTree:
    """What an import did, and what people should know of it."""

    imported: Imported
    notes: tuple[str, ...]


def import_tree(layout: str, root: Path, place: CachePlace, stated: Stated) -> ImportedTree:
    """Publish what a tree holds, as far as it can be given a key."""
    read = models_of_registry if layout == "optimum-neuron" else models_of_neo
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


def _notes(left_out: Sequence[tuple[str, str]]) -> Iterator[str]:
    for name, reason in left_out[:_SHOWN]:
        yield f"left out: {name} {reason}"
    if len(left_out) > _SHOWN:
        yield f"left out: {len(left_out) - _SHOWN} more"

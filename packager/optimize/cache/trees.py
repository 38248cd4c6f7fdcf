"""Imports the directory trees of other tools into the cache."""

from __future__ import annotations

import os
import secrets
import shutil
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from artifact_cache.entry import Entry, Writer
from artifact_cache.files import describe, seal
from artifact_cache.key import key_of, plain
from artifact_cache.stores.archive import Imported
from packager.core.ports import TreeReader
from packager.core.trees import Stated, TreeArtifact
from packager.core.version import __version__
from packager.optimize.cache.errors import CacheRefused
from packager.optimize.cache.operations import CachePlace

_SHOWN = 5  # graphs that are left out, by name


def import_tree(
    reader: TreeReader, root: Path, place: CachePlace, stated: Stated
) -> tuple[Imported, tuple[str, ...]]:
    """Publish the files of a tree for which a key can be computed; return notes on it, too."""
    tree = reader.read(root, stated)
    if not tree.artifacts:
        raise CacheRefused(
            f"there is nothing to import in {str(root)!r}"
            + (f": {tree.left_out[0][0]}: {tree.left_out[0][1]}" if tree.left_out else ""),
            hint=f"it should hold {reader.holds}",
        )
    published: list[Entry] = []
    known: list[Entry] = []
    for one in tree.artifacts:
        with place.scratch() as scratch:
            entry, is_new = _publish(one, reader.name, scratch, place)
        (published if is_new else known).append(entry)
    imported = Imported(published=tuple(published), known=tuple(known))
    return imported, tuple(_notes(tree.left_out))


def _publish(
    one: TreeArtifact, layout: str, scratch: Path, place: CachePlace
) -> tuple[Entry, bool]:
    """Copy the files, so that the tree stays its owner's, and publish them."""
    files = scratch / "files"
    files.mkdir()
    for path, source in one.files:
        target = files / path
        target.parent.mkdir(parents=True, exist_ok=True)
        with _opened(source) as reader, target.open("xb") as writer:
            shutil.copyfileobj(reader, writer, 1024 * 1024)
    entry = Entry(
        key=key_of(one.document),
        keydoc=plain(one.document),
        outputs=describe(seal(files, one.document.kind)),
        writer=Writer(
            nonce=secrets.token_hex(16),
            builder_id=f"imported from {layout}",
            version=__version__,
        ),
        built_at=int(time.time()),
        build_s=0.0,  # the duration was not recorded
        toolchain_report=dict(one.toolchain),
        labels={"model": one.model[:1000], "imported_from": layout},
    )
    return entry, place.publish(entry, files)


def _opened(path: Path) -> Any:
    return os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb")


def _notes(left_out: Sequence[tuple[str, str]]) -> Iterator[str]:
    for name, reason in left_out[:_SHOWN]:
        yield f"left out: {name} {reason}"
    if len(left_out) > _SHOWN:
        yield f"left out: {len(left_out) - _SHOWN} more"

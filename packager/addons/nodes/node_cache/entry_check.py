"""Whether an entry that is there can be used: by its outside, or by every byte.

An entry proves itself: the tar in it has the diffID in its name, and all around the tar is what
we make of that tar, byte by byte.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from packager.addons.nodes.node_cache.entry_file import read_all
from packager.addons.nodes.node_cache.places import sidecar_path
from packager.core.events import ignore
from packager.core.files.atomic import read_regular
from packager.core.files.opening import Identity, identity_of
from packager.core.units import MIB
from packager.images.erofs.metadata import ALIGNMENT, HEAD, make_blob
from packager.images.erofs.nodes import LayerNotMountable
from packager.images.erofs.scan import TarScanner
from packager.images.erofs.superblock import Superblock, parse_superblock
from packager.images.erofs.verity import verity_size, write_verity

OnBytes = Callable[[int], None]  # bytes that were hashed so far

_LONGEST_SIDECAR = 4096
_STEP = MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundEntry:
    """An entry that looks complete."""

    path: Path
    size: int
    superblock: Superblock
    data_size: int  # bytes of the file system; a hash tree lies behind them
    root_hash: str  # "" without a tree that can be used
    identity: Identity


class _Differs(Exception):
    """A byte is not what it has to be."""


def find_entry(path: Path, native_size: int = 0) -> FoundEntry | None:
    """Return the entry if its outside is in order: form, size, sidecar. Reads 4 KiB.

    `native_size` are the bytes of a layer that is a file system itself; 0: we made one.
    """
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            superblock = parse_superblock(file.read(HEAD))
    except OSError:
        return None
    if superblock is None or not (native_size or superblock.is_ours):
        return None
    block = superblock.block_size
    data_size = -(-native_size // block) * block or superblock.size
    with_tree = data_size + verity_size(data_size, block)
    try:
        root_hash = _read_sidecar(sidecar_path(path), data_size)
    except (OSError, ValueError):
        return None  # containerd would refuse to mount it
    whole = (with_tree,) if root_hash else (native_size or data_size, with_tree)
    if status.st_size not in whole:
        return None
    return FoundEntry(
        path=path,
        size=status.st_size,
        superblock=superblock,
        data_size=data_size,
        root_hash=root_hash,
        identity=identity_of(status),
    )


def is_foreign_entry(path: Path, *, needs_tree: bool) -> bool:
    """Return whether another tool put a file system there, which containerd would mount."""
    try:
        with path.open("rb") as file:
            superblock, size = parse_superblock(file.read(HEAD)), os.fstat(file.fileno()).st_size
    except OSError:
        return False
    if superblock is None or superblock.is_ours or size < superblock.size:
        return False
    return sidecar_path(path).exists() or not needs_tree


def verify_entry(
    found: FoundEntry, diff_id: str, native_size: int = 0, on_bytes: OnBytes = ignore
) -> bool:
    """Read the whole entry; return whether each byte is right. Raises `OSError`.

    `on_bytes` gets the number of bytes that were hashed.
    """
    with found.path.open("rb", buffering=0) as file:
        descriptor = file.fileno()
        if identity_of(os.fstat(descriptor)) != found.identity:
            return False
        try:
            if native_size:
                _compare_native(descriptor, diff_id, native_size, on_bytes)
            else:
                _compare_own(descriptor, found, diff_id, on_bytes)
            if found.root_hash:
                _compare_tree(descriptor, found)
        except (_Differs, LayerNotMountable):
            return False
        return identity_of(os.fstat(descriptor)) == found.identity


def _read_sidecar(path: Path, data_size: int) -> str:
    """Return the root hash in a sidecar; "" where there is none; raise where it is of no use."""
    try:
        data = read_regular(path, _LONGEST_SIDECAR)
    except FileNotFoundError:
        return ""
    stated = json.loads(data)
    root_hash = stated.get("roothash") if isinstance(stated, dict) else None
    if not isinstance(root_hash, str) or stated.get("hashoffset") != data_size:
        raise ValueError("not a sidecar of this entry")
    if len(bytes.fromhex(root_hash)) != hashlib.sha256().digest_size:
        raise ValueError("not a SHA-256")
    return root_hash


def _compare_native(file: int, diff_id: str, size: int, on_bytes: OnBytes) -> None:
    hashed = hashlib.sha256()
    for offset in range(0, size, _STEP):
        hashed.update(read_all(file, offset, min(_STEP, size - offset)))
        on_bytes(offset)
    if f"sha256:{hashed.hexdigest()}" != diff_id:
        raise _Differs


def _compare_own(file: int, found: FoundEntry, diff_id: str, on_bytes: OnBytes) -> None:
    """Hash the tar within, and compare what is around it with what we would write."""
    scanner, hashed = TarScanner(), hashlib.sha256()
    tar_end = found.superblock.metadata_at
    if not HEAD <= tar_end <= found.data_size:
        raise _Differs
    certain = max(HEAD, tar_end - ALIGNMENT)
    for offset in range(HEAD, certain, _STEP):
        piece = read_all(file, offset, min(_STEP, certain - offset))
        hashed.update(piece)
        scanner.feed(piece)
        on_bytes(offset)
    last = _last_bytes(hashed, read_all(file, certain, tar_end - certain), diff_id)
    scanner.feed(last)
    blob = make_blob(scanner.finish())
    behind = certain + len(last)
    if (
        blob.head != read_all(file, 0, HEAD)
        or behind + len(blob.tail) != found.data_size
        or blob.tail != read_all(file, behind, len(blob.tail))
    ):
        raise _Differs


def _last_bytes(hashed: hashlib._Hash, rest: bytes, diff_id: str) -> bytes:
    """Return the bytes of `rest` with which the digest is right: padding follows the tar."""
    by_likelihood = sorted(range(len(rest) + 1), key=lambda length: (length % 512 != 0, -length))
    for length in by_likelihood:
        attempt = hashed.copy()
        attempt.update(rest[:length])
        if f"sha256:{attempt.hexdigest()}" == diff_id:
            return rest[:length]
    raise _Differs


def _compare_tree(file: int, found: FoundEntry) -> None:
    def compare(offset: int, data: bytes) -> None:
        if read_all(file, offset, len(data)) != data:
            raise _Differs

    tree = write_verity(
        found.data_size,
        found.superblock.block_size,
        lambda offset, length: read_all(file, offset, length),
        compare,
    )
    if tree.root_hash != found.root_hash:
        raise _Differs

"""Entries in one file, for sites that no network reaches.

A tar of regular files, which `tar` can list and unpack, and which is the same,
byte for byte, for the same entries:

    VERSION                        {"archive":1}
    ac/<kind>/ab/<key>.json        every entry, in order of the names
    cas/sha256/ab/<digest>         every blob of these entries, in order of the names

Each header has one possible form: mode 0444, everything else zero or empty.
A reader knows which comes next and how large it is from the entries before it,
and takes nothing else.  So there are no links, devices, other paths, twins or
bombs to look out for, and no file is ever given a name from the archive.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import shutil
import tarfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from artifact_cache.entry import MAX_STORED_BYTES, Entry, Output, entry_bytes, parse_entry
from artifact_cache.errors import CacheError, MalformedEntry, StoreUnavailable
from artifact_cache.files import CHUNK, link_or_copy, open_regular, said, sealed_mode, sync
from artifact_cache.key import KIND_PATTERN
from artifact_cache.store import CacheStore, StoredEntry

MARK = b'{"archive":1}\n'
BLOCK = 512
RECORD = 20 * BLOCK  # what tar pads a file to
_KIND = KIND_PATTERN.strip("^$")
_ENTRY = re.compile(rf"ac/({_KIND})/([0-9a-f]{{2}})/(\2[0-9a-f]{{62}})\.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveLimits:
    """Limits of an archive. Sizes are checked before bytes are read."""

    entries: int = 10_000
    entry_bytes: int = 256 * 1024 * 1024  # of all entries, which are held in memory
    blob_bytes: int = 4 * 1024**4


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """Result of an import."""

    published: tuple[Entry, ...]
    known: tuple[Entry, ...]  # an entry was there already, and stays


class BadArchive(CacheError):
    """The file is not what `export_archive` writes. Nothing of it was published."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"the archive is refused: {reason}",
            hint="export it again, and compare the digests of both files",
        )


def export_archive(found: Iterable[StoredEntry], file: Path, scratch: Path) -> int:
    """Write entries and their files to `file`, whole or not at all; give its size.

    `scratch` is an empty directory for the files on their way, best on the
    disk of the store: then they are not copied.  Raises what `extract` raises,
    `StoreUnavailable` where the file cannot be written.
    """
    entries: dict[str, bytes] = {}
    blobs: dict[str, tuple[Output, Path]] = {}
    for number, stored in enumerate(found):
        into = scratch / str(number)
        into.mkdir()
        stored.extract(into)
        entries[_entry_name(stored.entry)] = entry_bytes(stored.entry)
        for output in stored.entry.outputs:
            blobs.setdefault(_blob_name(output.sha256), (output, into / output.path))
    if file.exists() and not file.is_file():
        raise StoreUnavailable(str(file), "it is a directory, a pipe or a device")
    draft = file.with_name(f".{file.name}.{secrets.token_hex(8)}")
    try:
        with draft.open("xb") as writer:
            _write(writer, entries, blobs)
            size = writer.tell()
            writer.flush()
            os.fsync(writer.fileno())
        draft.replace(file)
        sync(file.parent)
    except OSError as error:
        raise StoreUnavailable(str(file), said(error)) from error
    finally:
        with suppress(OSError):
            draft.unlink()
    return size


def import_archive(
    reader: BinaryIO, store: CacheStore, scratch: Path, *, limits: ArchiveLimits | None = None
) -> Imported:
    """Publish the entries of an archive after all of it has been read and compared.

    `scratch` is an empty directory with room for all blobs, best on the disk
    of the store.  Raises `BadArchive`, and what `store.put` raises.
    """
    limits = limits or ArchiveLimits()
    source = _Reader(reader)
    try:
        entries = _read_entries(source, limits)
        sizes = {output.sha256: output.size for entry in entries for output in entry.outputs}
        _refuse_too_much(sizes, limits, scratch)
        for digest in sorted(sizes):
            _read_blob(source, digest, sizes[digest], scratch)
        source.end()
        return publish_gathered(entries, store, scratch)
    except OSError as error:
        raise StoreUnavailable(str(scratch), said(error)) from error


def publish_gathered(entries: Sequence[Entry], store: CacheStore, scratch: Path) -> Imported:
    """Publish entries whose blobs lie in `scratch`, compared, under their bare digests."""
    published: list[Entry] = []
    known: list[Entry] = []
    for number, entry in enumerate(entries):
        directory = scratch / str(number)
        for output in entry.outputs:
            path = directory / output.path
            path.parent.mkdir(parents=True, exist_ok=True)
            link_or_copy(scratch / output.sha256, path, sealed_mode(output))
        (published if store.put(entry, directory) else known).append(entry)
        shutil.rmtree(directory)
    return Imported(published=tuple(published), known=tuple(known))


def _write(
    writer: BinaryIO, entries: Mapping[str, bytes], blobs: Mapping[str, tuple[Output, Path]]
) -> None:
    _write_small(writer, "VERSION", MARK)
    for name in sorted(entries):
        _write_small(writer, name, entries[name])
    for name in sorted(blobs):
        output, path = blobs[name]
        writer.write(_header(name, output.size))
        hashed = hashlib.sha256()
        with os.fdopen(open_regular(path), "rb") as file:
            while chunk := file.read(CHUNK):
                hashed.update(chunk)
                writer.write(chunk)
        if hashed.hexdigest() != output.sha256:  # plain tensors may have come out by their stamp
            raise StoreUnavailable(output.path, "it changed since it was published")
        writer.write(bytes(-output.size % BLOCK))
    writer.write(bytes(2 * BLOCK))
    writer.write(bytes(-writer.tell() % RECORD))


def _write_small(writer: BinaryIO, name: str, data: bytes) -> None:
    writer.write(_header(name, len(data)) + data + bytes(-len(data) % BLOCK))


def _header(name: str, size: int) -> bytes:
    """Return the one header that a file of that name and size has."""
    member = tarfile.TarInfo(name)
    member.size = size
    member.mode = 0o444
    return member.tobuf(tarfile.GNU_FORMAT)  # which can tell sizes beyond 8 GiB


class _Reader:
    """Reads members from a stream, which need not be able to go back."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._held: tuple[str, int] | None = None
        self._done = 0

    def peek(self) -> tuple[str, int]:
        """Return the name and size of the next member; ("", 0) at the end."""
        if self._held is None:
            block = self._exactly(BLOCK)
            self._held = ("", 0) if block == bytes(BLOCK) else _parsed_header(block)
        return self._held

    def chunks(self) -> Iterator[bytes]:
        """Yield the bytes of the member that `peek` told."""
        _, left = self.peek()
        padding = -left % BLOCK
        self._held = None
        while left:
            chunk = self._exactly(min(left, CHUNK))
            left -= len(chunk)
            yield chunk
        if self._exactly(padding).strip(b"\0"):
            raise BadArchive("there is something between its files")

    def end(self) -> None:
        """Refuse whatever is behind the last member."""
        if self.peek() != ("", 0):
            raise BadArchive("it holds more than its entries name")
        rest = self._exactly(BLOCK + (-(self._done + BLOCK) % RECORD))
        if rest.strip(b"\0") or self._file.read(1):
            raise BadArchive("there is something behind its end")

    def _exactly(self, count: int) -> bytes:
        pieces = []
        while count:
            piece = self._file.read(count)
            if not piece:
                raise BadArchive("it ends early")
            pieces.append(piece)
            count -= len(piece)
            self._done += len(piece)
        return b"".join(pieces)


def _parsed_header(block: bytes) -> tuple[str, int]:
    """Read name and size, and refuse every header that is not the one for them."""
    try:
        member = tarfile.TarInfo.frombuf(block, "ascii", "strict")
        if _header(member.name, member.size) == block and member.size >= 0:
            return member.name, member.size
    except (tarfile.HeaderError, ValueError):
        pass
    raise BadArchive("it holds something that an export does not write")


def _read_entries(source: _Reader, limits: ArchiveLimits) -> Sequence[Entry]:
    if source.peek() != ("VERSION", len(MARK)) or b"".join(source.chunks()) != MARK:
        raise BadArchive("it does not begin as an archive of this version")
    entries: list[Entry] = []
    last, total = "", 0
    while (found := source.peek())[0].startswith("ac/"):
        name, size = found
        total += size
        if not _ENTRY.fullmatch(name) or name <= last:
            raise BadArchive("its entries are not in order, or not where they belong")
        if size > MAX_STORED_BYTES or len(entries) == limits.entries or total > limits.entry_bytes:
            raise BadArchive("it has more, or larger, entries than it may")
        try:
            entry = parse_entry(b"".join(source.chunks()))
        except MalformedEntry as error:
            raise BadArchive(f"{name}: {error.message}") from error
        if _entry_name(entry) != name:
            raise BadArchive(f"{name} belongs elsewhere")
        entries.append(entry)
        last = name
    _refuse_two_sizes(entries)
    return entries


def _refuse_two_sizes(entries: Iterable[Entry]) -> None:
    sizes: dict[str, int] = {}
    for output in (output for entry in entries for output in entry.outputs):
        if sizes.setdefault(output.sha256, output.size) != output.size:
            raise BadArchive(f"blob {output.sha256[:12]} has two sizes")


def _refuse_too_much(sizes: Mapping[str, int], limits: ArchiveLimits, scratch: Path) -> None:
    needed = sum(sizes.values())
    if needed > limits.blob_bytes:
        raise BadArchive(f"its files have {needed} bytes, more than {limits.blob_bytes}")
    free = shutil.disk_usage(scratch).free
    if needed > free:
        raise StoreUnavailable(str(scratch), f"{needed} bytes are needed and {free} are free")


def _read_blob(source: _Reader, digest: str, size: int, scratch: Path) -> None:
    if source.peek() != (_blob_name(digest), size):
        raise BadArchive(f"blob {digest[:12]} is not where it belongs, or has another size")
    hashed = hashlib.sha256()
    with (scratch / digest).open("xb") as writer:
        for chunk in source.chunks():
            hashed.update(chunk)
            writer.write(chunk)
        os.fchmod(writer.fileno(), 0o444)  # so that it can be linked from here on
    if hashed.hexdigest() != digest:
        raise BadArchive(f"blob {digest[:12]} holds other bytes than its name says")


def _entry_name(entry: Entry) -> str:
    return f"ac/{entry.kind}/{entry.key[:2]}/{entry.key}.json"


def _blob_name(digest: str) -> str:
    return f"cas/sha256/{digest[:2]}/{digest}"

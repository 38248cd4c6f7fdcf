"""What goes of an image: every layer is read once, and nothing is written.

A file goes by its path in all layers, so that no older one of a lower layer comes to light.
What would change the rest stays: files that a hard link of a kept file names, and files in the
place of a directory of a lower layer.  Directories stay, and so do marks of deleted files.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import field
from pathlib import PurePosixPath

from packager.core.image import BaseImage, Blob, Layer
from packager.core.units import MIB
from packager.core.values import dataclass
from packager.errors import ProtocolFailed
from packager.images.rootfs.unpacking import unpack
from packager.images.slim.compressed import packing_of
from packager.images.slim.entries import END, Entry, LayerRefused, TarStream
from packager.images.slim.rules import Chooser, ChosenRules

LEAST_BYTES = MIB  # that a layer must lose: below it, sharing the layer as it is is worth more
MOST_ENTRIES = 4_000_000  # of an image
_LARGEST = 12  # files of a rule that are told by name
_WHITEOUT = ".wh."

Chunks = Callable[[Blob], Iterator[memoryview]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Gone:
    """What one rule takes."""

    rule: str
    files: int
    size: int  # bytes of their contents
    largest: tuple[tuple[str, int], ...]  # path and bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerScan:
    """What becomes of one layer."""

    size: int  # of its tar
    slim: int  # of its tar without what goes
    entries: int  # that it keeps
    dropped: int  # entries that go

    @property
    def is_rewritten(self) -> bool:
        return bool(self.dropped) and (self.size - self.slim >= LEAST_BYTES or not self.entries)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlimScan:
    """What goes of an image, layer by layer and rule by rule."""

    layers: tuple[LayerScan, ...]
    dropped: frozenset[str]  # paths; of rewritten layers
    gone: tuple[Gone, ...]
    linked: tuple[str, ...]  # paths that a rule names and a hard link keeps


def scan_image(
    base: BaseImage, chosen: ChosenRules, chunks: Chunks, on_layer: Callable[[int], None]
) -> SlimScan:
    """Read every layer, comparing its digests; decide what goes."""
    chooser, seen = Chooser(chosen), _Seen()
    read = []
    for at, layer in enumerate(base.layers):
        on_layer(at)
        read.append(_scan_layer(layer, chooser, chunks, seen))
    kept, scans = _settle(read, seen)
    rewritten = [one for one, scan in zip(read, scans, strict=True) if scan.is_rewritten]
    return SlimScan(
        layers=scans,
        dropped=frozenset(path for one in rewritten for path in one.named) - kept,
        gone=_gone(rewritten, kept, chosen),
        linked=tuple(sorted(seen.linked(seen.replacing))),
    )


def entries_of(
    layer: Layer, chunks: Chunks, on_tar: Callable[[memoryview], object] | None = None
) -> TarStream:
    """Return a layer's entries; its digests are compared when the last has been read."""
    return TarStream(verified(layer, chunks, on_tar))


def verified(
    layer: Layer, chunks: Chunks, on_tar: Callable[[memoryview], object] | None = None
) -> Iterator[memoryview]:
    """Yield a layer's tar; raise at its end where it is not what the image says it is."""
    packed, plain = hashlib.sha256(), hashlib.sha256()

    def counted() -> Iterator[memoryview]:
        for chunk in chunks(layer.blob):
            packed.update(chunk)
            yield chunk

    packing = packing_of(layer.media_type)
    for piece in unpack(counted(), layer.media_type, layer.digest, layer.blob.size):
        if packing != "none":
            plain.update(piece)
        if on_tar is not None:
            on_tar(piece)
        yield piece
    found = {layer.digest: packed}
    if packing != "none":
        found[layer.diff_id] = plain
    for stated, hashed in found.items():
        if stated and stated != f"sha256:{hashed.hexdigest()}":
            raise ProtocolFailed(
                f"a layer has digest sha256:{hashed.hexdigest()}, expected {stated}",
                hint="the base image or the source is damaged; fetch it again",
            )


@dataclass(slots=True)
class _Named:
    """An entry that a rule names."""

    rule: str
    size: int
    bytes: int  # of its part of the tar


@dataclass(slots=True, kw_only=True)
class _LayerRead:
    """A layer as it was read, before it is settled what stays after all."""

    size: int
    entries: int
    named: dict[str, list[_Named]]

    def settled(self, kept: Set[str]) -> LayerScan:
        going = [one for path, found in self.named.items() if path not in kept for one in found]
        return LayerScan(
            size=self.size,
            slim=self.size - sum(one.bytes for one in going),
            entries=self.entries - len(going),
            dropped=len(going),
        )


@dataclass(slots=True)
class _Seen:
    """What all layers together say of the paths that rules name."""

    named: set[str] = field(default_factory=set)
    replacing: set[str] = field(default_factory=set)  # a directory of a lower layer
    links: list[tuple[str, str]] = field(default_factory=list)  # path and target
    directories: set[str] = field(default_factory=set)
    entries: int = 0

    def linked(self, kept: Set[str]) -> set[str]:
        """Return the named paths that kept hard links lead to, over any number of links."""
        found: set[str] = set()
        while True:
            more = {
                target
                for path, target in self.links
                if target in self.named
                and target not in found
                and (path not in self.named or path in kept or path in found)
            }
            if not more:
                return found
            found |= more


def _settle(
    read: Sequence[_LayerRead], seen: _Seen
) -> tuple[frozenset[str], tuple[LayerScan, ...]]:
    """Return the named paths that stay after all, and what becomes of each layer.

    A file stays in every layer, or goes from every layer: one that a layer keeps, since too
    little of that layer would go, must not come to light below another that went.
    """
    kept = set(seen.replacing)
    while True:
        kept |= seen.linked(kept)
        scans = tuple(one.settled(kept) for one in read)
        whole = [one for one, scan in zip(read, scans, strict=True) if not scan.is_rewritten]
        left = {path for one in whole for path in one.named} - kept
        if not left:
            return frozenset(kept), scans
        kept |= left


def _scan_layer(layer: Layer, chooser: Chooser, chunks: Chunks, seen: _Seen) -> _LayerRead:
    named: dict[str, list[_Named]] = {}
    counted = size = 0
    for entry in entries_of(layer, chunks):
        counted += 1
        seen.entries += 1
        if seen.entries > MOST_ENTRIES:
            raise LayerRefused(f"the image has more than {MOST_ENTRIES} entries")
        taken = len(entry.head) + entry.stored
        size += taken
        if entry.kind == "link":
            seen.links.append((entry.path, entry.target))
        rule = _rule_for(entry, chooser)
        if rule is None:
            _add_directories(entry, seen.directories)
            continue
        if entry.path in seen.directories:
            seen.replacing.add(entry.path)
        seen.named.add(entry.path)
        named.setdefault(entry.path, []).append(_Named(rule, entry.size, taken))
    return _LayerRead(size=size + len(END), entries=counted, named=named)


def may_go(entry: Entry) -> bool:
    """Return whether rules are asked for an entry: directories, devices and deletions stay."""
    is_mark = entry.path.rpartition("/")[2].startswith(_WHITEOUT)
    return entry.kind in ("file", "link", "symlink") and not is_mark


def _rule_for(entry: Entry, chooser: Chooser) -> str | None:
    """Return the name of the rule that takes an entry; None of what stays."""
    rule = chooser.rule_for(entry.path) if may_go(entry) else None
    return rule.name if rule else None


def _add_directories(entry: Entry, directories: set[str]) -> None:
    """Add the directory that an entry is, or those that it lies in."""
    if entry.kind == "directory":
        directories.add(entry.path)
    for parent in PurePosixPath(entry.path).parents:
        if (text := str(parent)) in directories:
            return
        directories.add(text)


def _gone(rewritten: Iterable[_LayerRead], kept: Set[str], chosen: ChosenRules) -> tuple[Gone, ...]:
    files: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    listed: dict[str, list[tuple[str, int]]] = {}
    for layer in rewritten:
        for path, found in layer.named.items():
            if path in kept:
                continue
            for one in found:
                files[one.rule] += 1
                sizes[one.rule] += one.size
                listed.setdefault(one.rule, []).append((path, one.size))
    return tuple(
        Gone(
            rule=rule.name,
            files=files[rule.name],
            size=sizes[rule.name],
            largest=_largest(listed, rule.name),
        )
        for rule in chosen.rules
        if files[rule.name]
    )


def _largest(listed: Mapping[str, list[tuple[str, int]]], rule: str) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(listed[rule], key=lambda one: (-one[1], one[0]))[:_LARGEST])

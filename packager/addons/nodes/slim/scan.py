"""Selection of the files to remove from an image, by the listings of its layers; read-only.

A file is removed by its path from all layers, so that no older one of a lower layer reappears.
Files whose removal would change others stay: targets of hard links of kept files, and files in the
place of a directory of a lower layer.  Directories stay, and so do marks of deleted files.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Literal

from packager.addons.nodes.slim.rules import Chooser, ChosenRules
from packager.core.image import BaseImage, Layer
from packager.core.units import MIB
from packager.images.rootfs.headers import BLOCK
from packager.images.rootfs.listing import ListingEntry
from packager.images.rootfs.node import NodeKind, Path
from packager.images.rootfs.unpacking import layer_broken

LEAST_BYTES = MIB  # that a layer must lose: below it, sharing the layer as it is is worth more
MOST_ENTRIES = 4_000_000  # of an image
_LARGEST = 12  # files of a rule that are listed by name
_WHITEOUT = b".wh."

# A layer's entries, by the image's reference: `LayerReader.entries_of`.
List = Callable[[str, Sequence[Layer]], Sequence[Sequence[ListingEntry]]]


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

    gone: int  # bytes of its tar, but for the longest of names
    entries: int  # that it keeps
    dropped: int  # entries that go

    @property
    def is_rewritten(self) -> bool:
        return bool(self.dropped) and (self.gone >= LEAST_BYTES or not self.entries)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlimScan:
    """Files to remove from an image, by layer and by rule."""

    layers: tuple[LayerScan, ...]
    dropped: frozenset[str]  # paths; of rewritten layers
    gone: tuple[Gone, ...]
    linked: tuple[str, ...]  # paths that a rule names and a hard link keeps


def scan_image(base: BaseImage, chosen: ChosenRules, list_layers: List) -> SlimScan:
    """Decide which files of the layers to remove."""
    chooser, seen = Chooser(chosen), _Seen()
    listed = list_layers(base.reference, base.layers)
    read = [
        _scan_layer(layer, entries, chooser, seen)
        for layer, entries in zip(base.layers, listed, strict=True)
    ]
    kept, scans = _settle(read, seen)
    rewritten = [one for one, scan in zip(read, scans, strict=True) if scan.is_rewritten]
    return SlimScan(
        layers=scans,
        dropped=frozenset(path for one in rewritten for path in one.named) - kept,
        gone=_gone(rewritten, kept, chosen),
        linked=tuple(sorted(seen.linked(seen.replacing))),
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

    entries: int
    named: dict[str, list[_Named]]

    def settled(self, kept: Set[str]) -> LayerScan:
        going = [one for path, found in self.named.items() if path not in kept for one in found]
        return LayerScan(
            gone=sum(one.bytes for one in going),
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


def _scan_layer(
    layer: Layer, entries: Iterable[ListingEntry], chooser: Chooser, seen: _Seen
) -> _LayerRead:
    named: dict[str, list[_Named]] = {}
    counted = 0
    for entry in entries:
        counted += 1
        seen.entries += 1
        if seen.entries > MOST_ENTRIES:
            raise layer_broken(layer.digest, f"its image has more than {MOST_ENTRIES:,} entries")
        path, kind = text_of(entry.path), entry.node.kind if entry.node else "link"
        if entry.node is None:
            seen.links.append((path, text_of(entry.target)))
        rule = chooser.rule_for(path) if may_go(entry.path, kind) else None
        if rule is None:
            _add_directories(path, kind, seen.directories)
            continue
        if path in seen.directories:
            seen.replacing.add(path)
        seen.named.add(path)
        size = entry.node.size if entry.node else 0
        taken = BLOCK + size + -size % BLOCK
        named.setdefault(path, []).append(_Named(rule.name, size, taken))
    return _LayerRead(entries=counted, named=named)


def may_go(path: Path, kind: NodeKind | Literal["link"]) -> bool:
    """Return whether rules apply to an entry: directories, devices and deletions stay."""
    is_mark = bool(path) and path[-1].startswith(_WHITEOUT)
    return kind in ("file", "link", "symlink") and not is_mark


def text_of(path: Path) -> str:
    """Return a path as rules are written: without `/` in front of it."""
    return b"/".join(path).decode("utf-8", "surrogateescape")


def _add_directories(path: str, kind: str, directories: set[str]) -> None:
    """Add the directory that an entry is, or those that it lies in."""
    if kind == "directory":
        directories.add(path)
    for parent in PurePosixPath(path).parents:
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

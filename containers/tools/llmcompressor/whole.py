"""A quantized checkpoint with everything that its source had, under the source's names.

Each tensor of the source comes out as it is, quantized in place, or replaced by packed words and
scales of the same module.  Tensors that the library did not load are taken from the source byte
for byte, and their modules are declared unquantized.  Anything else fails, naming the tensors.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol

import torch
from names import SHOWN, Part, SourceNames, digest_of, listed
from packager_worker import Rejected

# What stands beside a quantized weight; compressed-tensors 0.19, `compressors/`.
BESIDE = frozenset(
    f"{kind}_{part}"
    for kind in ("weight", "input", "output")
    for part in ("scale", "zero_point", "global_scale", "g_idx", "shape", "packed")
)
CACHE_SCALES = frozenset(("k_scale", "v_scale", "q_scale", "k_zero_point", "v_zero_point"))
EMBEDDING = re.compile(
    r"(?:^|\.)(?:embed_(?:tokens|in|positions)|w[tp]e|(?:\w+_)?embeddings?|pos_embed)\.weight$"
)
EXPERT = re.compile(r"\.experts\.\d+\.")
SOURCE, SAVED = "source", "saved"


class Tensors(Protocol):
    """A checkpoint that is read by tensor."""

    @property
    def names(self) -> list[str]: ...
    def __contains__(self, name: str) -> bool: ...
    def get(self, name: str) -> torch.Tensor: ...
    def size(self, name: str) -> int: ...
    def shape(self, name: str) -> tuple[int, ...]: ...
    def dtype(self, name: str) -> str: ...


@dataclass(frozen=True, slots=True)
class Piece:
    """Where a tensor of the result is read, and the type that it gets."""

    origin: str  # SOURCE or SAVED
    name: str
    cast: torch.dtype | None = None


class Whole:
    """The tensors of a result by the source's names."""

    def __init__(
        self,
        source: Tensors,
        saved: Tensors,
        pieces: Mapping[str, Piece],
        grafted: tuple[str, ...],
        stand_for: Mapping[str, str],
    ) -> None:
        self._places = {SOURCE: source, SAVED: saved}
        self._pieces = pieces
        self.grafted = grafted  # came back from the source: the library did not load them
        self.stand_for = stand_for  # by tensor, the one of the source that it is, or is made of

    @property
    def names(self) -> list[str]:
        return sorted(self._pieces)

    @property
    def replaced(self) -> set[str]:
        """Tensors of the source that something else stands for."""
        beside = (own for name, own in self.stand_for.items() if name != own)
        return set(beside)

    def __contains__(self, name: str) -> bool:
        return name in self._pieces

    def get(self, name: str) -> torch.Tensor:
        piece = self._pieces[name]
        tensor = self._places[piece.origin].get(piece.name)
        return tensor if piece.cast is None else tensor.to(piece.cast)

    def size(self, name: str) -> int:
        place, held = self._own_kind(name)
        return place.size(held)

    def dtype(self, name: str) -> str:
        place, held = self._own_kind(name)
        return place.dtype(held)

    def _own_kind(self, name: str) -> tuple[Tensors, str]:
        """Return a tensor of the same type and size, and where it is; casts give the source's."""
        piece = self._pieces[name]
        if piece.cast is None:
            return self._places[piece.origin], piece.name
        return self._places[SOURCE], name


def restore(
    source: Tensors, saved: Tensors, names: SourceNames, config: Mapping[str, Any]
) -> Whole:
    """Map every tensor of the source to its place in the result; raise with those that are lost."""
    made = _Restoring(source, saved, names, ties=states_ties(config))
    made.collect()
    if made.lost:
        raise Rejected(
            "tensors of the source that the result lost or gave another shape: "
            f"{listed(made.lost)}",
            "choose another method, or leave their modules out with --quantize-ignore",
        )
    if unknown := made.unknown():
        raise Rejected(
            f"tensors of the result that the source has not: {listed(unknown)}",
            "choose another method, or leave their modules out with --quantize-ignore",
        )
    return Whole(source, saved, made.pieces, names.unread, made.stand_for)


def declare(
    quantization: Mapping[str, Any], names: SourceNames, source: Tensors, quantized: set[str]
) -> dict[str, Any]:
    """Write `quantization_config` with the source's names, and all matrices that stay as they are.

    Their order is that of the names, and that of groups and targets that of their texts: who has
    the source's headers alone can write the same.
    `quantized` are the tensors of the source that were.
    """
    ignored = {one for entry in quantization.get("ignore") or () for one in _ignored(entry, names)}
    plain = [one for one in source.names if one not in quantized and len(source.shape(one)) == 2]
    modules = {*plain_modules(names.unread, source), *plain_modules(plain, source)}
    declared = {**quantization, "ignore": sorted(ignored | modules)}
    if isinstance(groups := quantization.get("config_groups"), Mapping):
        found = [
            {**group, "targets": sorted(_renamed(one, names) for one in group.get("targets", ()))}
            for group in groups.values()
        ]
        ordered = enumerate(sorted(found, key=lambda group: group["targets"]))
        declared["config_groups"] = {f"group_{number}": group for number, group in ordered}
    return declared


def plain_modules(grafted: Iterable[str], source: Tensors) -> list[str]:
    """List the Linear modules among tensors that came back, as ignore lists have them."""
    found: list[str] = []
    for name in sorted(grafted):
        dimensions = len(source.shape(name))
        if dimensions == 2 and name.endswith(".weight") and not EMBEDDING.search(name):
            found.append(name.removesuffix(".weight"))
        elif dimensions == 3:  # all experts in one: engines ask for each by a name of their own
            pattern = f"re:^{re.escape(name.rpartition('.')[0])}.*"
            found += [pattern] if pattern not in found else []
    return found


def grafted_roots(grafted: Iterable[str], source: Tensors) -> list[str]:
    """List the outermost modules that hold nothing but tensors that came back.

    AutoAWQ's list is matched by substrings, and engines fuse modules into names that no tensor
    has: only a whole branch is sure to match.
    """
    back = set(grafted)
    inner = {path for name in source.names if name not in back for path in _branches(name)}
    matrices = (name for name in back if len(source.shape(name)) >= 2 and "." in name)
    linear = (name for name in matrices if name.endswith(".weight"))
    roots = {next((path for path in _branches(name) if path not in inner), "") for name in linear}
    return sorted(roots - {""})


def grafted_note(grafted: tuple[str, ...]) -> str:
    """Report how many tensors came back from the source, and which."""
    branches = sorted({_branch(name) for name in grafted})
    more = f" and {len(branches) - SHOWN} more" if len(branches) > SHOWN else ""
    shown = ", ".join(f"{branch}.*" for branch in branches[:SHOWN]) + more
    return f"{len(grafted)} tensors that the library does not load are the source's own: {shown}"


def states_ties(config: Mapping[str, Any]) -> bool:
    """Whether config.json says that the head is the embedding."""
    text = config.get("text_config")
    nested = text.get("tie_word_embeddings") if isinstance(text, Mapping) else None
    return config.get("tie_word_embeddings", nested) is True


class _Restoring:
    """Finds the pieces of a result, and what cannot be found."""

    def __init__(self, source: Tensors, saved: Tensors, names: SourceNames, *, ties: bool) -> None:
        self.pieces: dict[str, Piece] = {}
        self.stand_for: dict[str, str] = {}
        self.lost: list[str] = []
        self._source, self._saved, self._names, self._ties = source, saved, names, ties
        self._taken: set[str] = set()
        self._beside: dict[str, list[str]] = {}
        for name in saved.names:
            module, _, part = name.rpartition(".")
            if part in BESIDE:
                self._beside.setdefault(module, []).append(name)

    def collect(self) -> None:
        """Go through every tensor of the source once."""
        for name, target in self._names.own.items():
            if not self._take(name, target):
                self.lost.append(name)
            self._note(name)
        for name, parts in self._names.spread.items():
            if not self._take_parts(name, parts):
                self.lost.append(name)
            self._note(name)
        for name, (target, digest) in self._names.converted.items():
            self._taken.add(target)
            if target not in self._saved or digest_of(self._saved.get(target)) != digest:
                self.lost.append(name)
            self.pieces[name] = Piece(SOURCE, name)
            self._note(name)
        for name in self._names.unread:
            self.pieces[name] = Piece(SOURCE, name)
            self._note(name)

    def _note(self, name: str) -> None:
        """Record what the pieces that were collected last stand for."""
        for piece in islice(self.pieces, len(self.stand_for), None):
            self.stand_for[piece] = name

    def unknown(self) -> list[str]:
        """Collect the scales of the cache; return what the library added that nobody declared."""
        skipped = {*self._names.unread, *self._names.tied, *self._names.buffers}
        left = []
        for name in self._saved.names:
            if name in self._taken or name in skipped:
                continue
            module, _, part = name.rpartition(".")
            if part in CACHE_SCALES:
                self.pieces[f"{self._names.module(module)}.{part}"] = Piece(SAVED, name)
            else:
                left.append(name)
        return left

    def _take(self, name: str, target: str) -> bool:
        """Collect a tensor that the model held whole: as it is, quantized, or replaced."""
        module, _, part = target.rpartition(".")
        beside = self._beside.get(module, []) if part == "weight" else []
        shape = self._source.shape(name)
        if target not in self._saved:
            if beside and name.endswith(".weight"):
                self._take_beside(name.removesuffix(".weight"), beside)
                return self._is_packed(module, shape)
            if target in self._names.tied and not self._ties:
                self.pieces[name] = Piece(SOURCE, name)
            return target in self._names.tied
        self._taken.add(target)
        if self._saved.shape(target) != shape:
            return False
        if not beside:
            self.pieces[name] = self._plain(name, target)
            return True
        self.pieces[name] = Piece(SAVED, target)
        self._take_beside(name.removesuffix(".weight"), beside)
        return name.endswith(".weight")

    def _plain(self, name: str, target: str) -> Piece:
        """Map what is not quantized to the source's own type, which loading may have changed."""
        if self._source.dtype(name) == self._saved.dtype(target):
            return Piece(SAVED, target)
        own, held = self._source.get(name), self._saved.get(target)
        if torch.equal(own.to(held.dtype), held):
            return Piece(SOURCE, name)
        return Piece(SAVED, target, cast=own.dtype)

    def _take_parts(self, name: str, parts: tuple[Part, ...]) -> bool:
        """Collect the experts of a fused tensor one by one, or the tensor where nothing changed."""
        modules = [part.name.rpartition(".")[0] for part in parts]
        self._taken.update(part.name for part in parts if part.name in self._saved)
        if not any(module in self._beside for module in modules):
            if not all(part.name in self._saved for part in parts):
                return False
            fused = self._source.get(name)
            self.pieces[name] = Piece(SOURCE, name)
            held = ((part.of(fused), self._saved.get(part.name)) for part in parts)
            return all(torch.equal(one.to(other.dtype), other) for one, other in held)
        shape = self._source.shape(name)
        whole = True
        for part, module in zip(parts, modules, strict=True):
            own = f"{self._names.module(module)}.{part.name.rpartition('.')[2]}"
            beside = self._beside.get(module, []) if part.name.endswith(".weight") else []
            if part.name in self._saved:
                self.pieces[own] = Piece(SAVED, part.name)
                whole = whole and self._saved.shape(part.name) == part.shape(shape)
            else:
                whole = whole and bool(beside) and self._is_packed(module, part.shape(shape))
            self._take_beside(self._names.module(module), beside)
        return whole

    def _take_beside(self, own: str, beside: Iterable[str]) -> None:
        for name in beside:
            self._taken.add(name)
            self.pieces[f"{own}.{name.rpartition('.')[2]}"] = Piece(SAVED, name)

    def _is_packed(self, module: str, shape: tuple[int, ...]) -> bool:
        """Whether the packed words of a module are for a weight of this shape."""
        packed, stated = f"{module}.weight_packed", f"{module}.weight_shape"
        if packed not in self._saved or len(shape) != 2:
            return False
        if stated in self._saved and tuple(self._saved.get(stated).tolist()) != shape:
            return False
        rows, words = self._saved.shape(packed)
        return rows == shape[0] and 0 < words < shape[1]


def _ignored(entry: str, names: SourceNames) -> Iterator[str]:
    """Return an entry as the source spells it, and as those ask who do not.

    transformers asks for a head by its own name of it, and vLLM before 0.31 for `gate_proj` of
    experts whatever the source calls it.
    """
    yield (renamed := _renamed(entry, names))
    path, _, part = renamed.rpartition(".")
    own = entry.rpartition(".")[2]
    if renamed != entry and f"{entry}.weight" in names.tied:
        yield entry
    elif part != own and EXPERT.search(renamed):
        yield f"{path}.{own}"


def _renamed(entry: str, names: SourceNames) -> str:
    return entry if entry.startswith("re:") else names.module(entry)


def _branch(name: str) -> str:
    """Return a tensor's branch for a message: a head by its name, others up to their layer."""
    steps = name.split(".")
    for place, step in enumerate(steps[:-1]):
        if step.startswith("mtp") or (step.isdecimal() and place):
            return ".".join(steps[: place + 1])
    return ".".join(steps[:2])


def _branches(name: str) -> Iterator[str]:
    """Yield the modules that a tensor is in, outermost first."""
    steps = name.split(".")
    for count in range(1, len(steps)):
        yield ".".join(steps[:count])

"""Vectors and scores of a server, compared with those that the model itself gives.

A reference is a JSON file: `texts` with `vectors`, or with `scores` against a `query`, as
sentence-transformers answers in 32 bits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any

from packager.cli.serving.smoke_pooling import (
    EMBED,
    RERANK,
    Ask,
    PooledAnswer,
    as_ranks,
    as_vectors,
    cosine,
)
from packager.core.documents import NotStrict, parse_object
from packager.core.errors import NotFound, SmokeFailed, UsageError
from packager.images.stored import RECORD

_LARGEST = 64 << 20  # bytes of a reference
_MOST = 4096  # texts
# What an element type alone may change: least cosine of a vector, most of a score.  Tiny models of
# six architectures lose 0.000003 and 0.0005 in fp16, 0.00013 and 0.003 in bf16
# (sentence-transformers 6.2.0, 2026-12-01); deep models lose more.
BOUNDS: Mapping[str, tuple[float, float]] = MappingProxyType(
    {"fp32": (0.9999, 1e-4), "fp16": (0.999, 5e-3), "bf16": (0.995, 2e-2)}
)
_QUANTIZED = (0.97, 5e-2)


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolingReference:
    """What the model itself answers."""

    texts: tuple[str, ...]
    vectors: tuple[tuple[float, ...], ...] = ()
    scores: tuple[float, ...] = ()
    query: str = ""

    @property
    def path(self) -> str:
        return RERANK if self.scores else EMBED


def read_reference(path: Path) -> PoolingReference:
    """Read a reference; raise `NotFound`, or `UsageError` for one that is none."""
    try:
        with path.open("rb") as file:
            found = parse_object(file.read(_LARGEST + 1), max_bytes=_LARGEST)
    except OSError as error:
        hint = "name the JSON file of the model's own answers: see docs/pooling.md"
        raise NotFound(f"no reference at {str(path)!r}: {error.strerror}", hint=hint) from error
    except NotStrict as error:
        raise _unusable(path, str(error)) from error
    texts, query = found.get("texts"), found.get("query", "")
    rows, scores = found.get("vectors", []), found.get("scores", [])
    if not isinstance(texts, list) or not all(isinstance(one, str) for one in texts):
        raise _unusable(path, "'texts' is no list of texts")
    if not 2 <= len(texts) <= _MOST or not isinstance(query, str):
        raise _unusable(path, f"it has not 2 to {_MOST} texts")
    if bool(rows) == bool(scores) or len(rows or scores) != len(texts):
        raise _unusable(path, "it has not one of 'vectors' and 'scores' for each text")
    if not _are_numbers(scores) or not all(isinstance(row, list) and row for row in rows):
        raise _unusable(path, "a vector or a score is no number")
    if not all(map(_are_numbers, rows)) or len({len(row) for row in rows}) > 1:
        raise _unusable(path, "vectors are not numbers of one count")
    return PoolingReference(
        texts=tuple(texts), vectors=tuple(map(tuple, rows)), scores=tuple(scores), query=query
    )


def check_reference(
    ask: Ask, path: str, model: str, reference: PoolingReference, precision: str
) -> PooledAnswer:
    """Ask for the reference's texts; raise `SmokeFailed` where answers differ beyond the type."""
    if path != reference.path:
        raise SmokeFailed(
            f"the server answers {path}, and the reference is of {reference.path}",
            hint="give vectors of an embedder, or scores of a reranker",
        )
    least, most = BOUNDS.get(precision, _QUANTIZED)
    texts = list(reference.texts)
    if reference.vectors:
        document, seconds = ask(path, {"model": model, "input": texts})
        words = _compare_vectors(as_vectors(document), reference, least, precision)
    else:
        body = {"model": model, "query": reference.query, "documents": texts}
        document, seconds = ask(path, body)
        got = [row[0] for row in as_ranks(document)]
        words = _compare_scores(got, reference, most, precision)
    return path, words, 0, seconds


def _compare_vectors(
    rows: list[list[float]], reference: PoolingReference, least: float, precision: str
) -> str:
    sizes = {len(row) for row in (*rows, *reference.vectors)}
    if len(rows) != len(reference.vectors) or len(sizes) != 1:
        raise _other("vectors have other sizes than the model's own")
    pairs = zip(rows, reference.vectors, strict=True)
    found = [cosine(row, list(own)) for row, own in pairs]
    worst = min(range(len(found)), key=found.__getitem__)
    if found[worst] < least:
        raise _other(
            f"the vector of text {worst + 1} has a cosine of {found[worst]:.5f} with the model's "
            f"own; {precision or 'its type'} allows {least:g}"
        )
    mean = sum(found) / len(found)
    return f"as the model's own: cosine {found[worst]:.6f} at least, {mean:.6f} in the mean"


def _compare_scores(
    got: list[float], reference: PoolingReference, most: float, precision: str
) -> str:
    own = reference.scores
    if len(got) != len(own):
        raise _other(f"{len(got)} scores came of {len(own)} texts")
    apart = max(abs(a - b) for a, b in zip(got, own, strict=True))
    if apart > most:
        raise _other(
            f"a score is {apart:.4f} off the model's own; {precision or 'its type'} allows {most:g}"
        )
    order = sorted(range(len(own)), key=lambda at: -own[at])
    for above, below in pairwise(order):
        if own[above] - own[below] > most and got[above] <= got[below]:
            raise _other(f"text {below + 1} ranks before text {above + 1}, against the model's own")
    return f"as the model's own: scores {apart:.6f} off at most, ranks equal"


def _are_numbers(found: object) -> bool:
    return isinstance(found, list) and all(type(one) in (int, float) for one in found)


def _other(what: str) -> SmokeFailed:
    hint = "prompts, truncation, pooling or the element type differ: `--dtype float32` tells which"
    return SmokeFailed(what, hint=hint)


def _unusable(path: Path, what: str) -> UsageError:
    hint = "write {texts, vectors} or {query, texts, scores}: see docs/pooling.md"
    return UsageError(f"the reference {str(path)!r} cannot be used: {what}", hint=hint)


def precision_of(labels: Mapping[str, Any]) -> str:
    """Return the element type in an image's label of its build; "" where it has none."""
    try:
        record = parse_object(str(labels.get(RECORD, "")).encode())
    except NotStrict:
        return ""
    found = record.get("precision")
    return found if isinstance(found, str) else ""

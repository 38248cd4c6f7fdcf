"""Smoke test of a server that gives vectors or scores: each of its own paths, and /invocations."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from packager.core.documents import NotStrict, field
from packager.core.errors import SmokeFailed

# Sends a body to a path; returns the answer and its seconds.
Ask = Callable[[str, Mapping[str, Any]], tuple[Any, float]]
# Found path, what is said of it, tokens of the request, seconds.
PooledAnswer = tuple[str, str, int, float]

CHAT = "/v1/chat/completions"
EMBED, RERANK, CLASSIFY = "/v1/embeddings", "/rerank", "/classify"
INVOCATIONS = "/invocations"
_OTHER = "Rain falls in autumn, and the river rises."
_ALIKE = 0.999  # cosine of two answers to one text: batches are computed in other orders


def pooling_path(description: object) -> str:
    """Return the path of vectors or scores of a server without chats; "" for others.

    `description` is the server's /openapi.json, as it was parsed.
    """
    paths = description.get("paths") if isinstance(description, dict) else None
    if not isinstance(paths, dict) or CHAT in paths:
        return ""
    return next((path for path in (EMBED, RERANK, CLASSIFY) if path in paths), "")


def ask_pooling(ask: Ask, path: str, model: str, text: str) -> tuple[PooledAnswer, ...]:
    """Ask on the path and on /invocations in the same words; both must agree.

    Raises `SmokeFailed` for vectors or scores that are no numbers, or differ.
    """
    texts = [text, _OTHER]
    body: dict[str, Any] = {"model": model, "input": texts}
    if path == RERANK:
        body = {"model": model, "query": text, "documents": texts}
    read = {EMBED: as_vectors, RERANK: as_ranks, CLASSIFY: _probabilities}[path]
    answers, found = [], []
    for where in (path, INVOCATIONS):
        document, seconds = ask(where, body)
        rows = read(document)
        if len(rows) != len(texts) or len({len(row) for row in rows}) != 1:
            raise _unusable(where, f"{len(rows)} answers to {len(texts)} texts")
        if not all(math.isfinite(one) for row in rows for one in row):
            raise _unusable(where, "a value that is no number")
        found.append(rows)
        usage = document.get("usage")
        tokens = usage.get("prompt_tokens", 0) if isinstance(usage, dict) else 0
        words = f"{len(rows)} x {len(rows[0])} " + ("values" if path == EMBED else "scores")
        answers.append((where, words, tokens if type(tokens) is int else 0, seconds))
    if path == EMBED and any(not any(row) for row in found[0]):
        raise _unusable(path, "a vector of zeros")
    pairs = zip(found[0], found[1], strict=True)
    if not all(_agree(one, other, path) for one, other in pairs):
        raise _unusable(INVOCATIONS, f"others than {path} gives for the same texts")
    return tuple(answers)


def _agree(one: list[float], other: list[float], path: str) -> bool:
    if path == EMBED:
        return cosine(one, other) >= _ALIKE
    return all(abs(a - b) <= 1 - _ALIKE + 0.01 * abs(a) for a, b in zip(one, other, strict=True))


def cosine(one: list[float], other: list[float]) -> float:
    """Return the cosine of the angle between two vectors."""
    lengths = math.hypot(*one) * math.hypot(*other)
    return sum(a * b for a, b in zip(one, other, strict=True)) / lengths if lengths else 0.0


def as_vectors(document: object) -> list[list[float]]:
    return [_numbers(row.get("embedding")) for row in _in_order(field(document, "data", list))]


def as_ranks(document: object) -> list[list[float]]:
    rows = _in_order(field(document, "results", list))
    return [_numbers([row.get("relevance_score")]) for row in rows]


def _probabilities(document: object) -> list[list[float]]:
    return [_numbers(row.get("probs")) for row in _in_order(field(document, "data", list))]


def _in_order(rows: list[Any]) -> list[dict[str, Any]]:
    return sorted(
        (row for row in rows if isinstance(row, dict)), key=lambda row: field(row, "index", int)
    )


def _numbers(stated: object) -> list[float]:
    if not isinstance(stated, list) or not all(type(one) in (int, float) for one in stated):
        raise NotStrict("a vector or a score is no list of numbers")
    return [float(one) for one in stated]


def _unusable(where: str, what: str) -> SmokeFailed:
    return SmokeFailed(f"{where} answers with {what}", hint="its log is above")

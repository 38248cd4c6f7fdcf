"""Vectors and scores of the double of an engine, in vLLM's words or TEI's; a word is a token."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

PATHS = ("/v1/embeddings", "/rerank", "/score", "/classify")
_ROWS: Mapping[str, Mapping[str, Any]] = {
    "/rerank": {"relevance_score": 0.5},
    "/score": {"score": 0.5},
    "/classify": {"label": "a", "probs": [0.5, 0.5]},
}


def pooled_document(path: str, body: Mapping[str, Any], *, tei: bool) -> tuple[Any, int]:
    """Return the answer, without its usage, and the tokens of a request; None for a bad body."""
    names = ("texts",) if tei and path == "/rerank" else ("documents", "input", "text_2")
    texts = next((body[name] for name in names if name in body), None)
    if not isinstance(texts, list):
        return None, 0
    query = body.get("query", body.get("text_1", ""))
    tokens = sum(len(f"{query} {text}".split()) for text in texts)
    row = _ROWS.get(path, {"embedding": [0.1, 0.2]})
    rows = [{"index": at, **row} for at in range(len(texts))]
    if tei and path == "/rerank":
        return [{"index": at, "score": 0.5} for at in range(len(texts))], tokens
    return {"results" if path == "/rerank" else "data": rows}, tokens

"""Requests for vectors and scores: made texts, or a query and its passages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from packager.addons.bench.load.spec import PAIRED, PATHS, RequestShape
from packager.addons.bench.load.texts import TextWriter
from packager.addons.bench.load.values import LoadRequest
from packager.core.probes import prompt_end

LONGEST_QUERY, QUERY_SHARE = 32, 4  # tokens of a query, and the part of a pair that it is at most


def passages_request(
    shape: RequestShape,
    writer: TextWriter,
    tokens: int,
    key: tuple[object, ...],
    *,
    added: int,
    counts: bool,
) -> tuple[LoadRequest, int]:
    """Return a request of the shape's texts of so many tokens each, and the tokens of all texts.

    A pair has the tokens of its query and its passage.  `added` are those that a server adds to
    a text; `counts` states the request's own count, as the server would have it.
    """
    left = max(1, tokens - added)
    place = (shape.seed, *key)
    query = None
    if shape.endpoint in PAIRED:
        query = writer.write(max(1, min(LONGEST_QUERY, left // QUERY_SHARE)), *place, "query")
        left = max(1, left - query.tokens)
    texts = [writer.write(left, *place, number) for number in range(shape.texts)]
    found = sum(one.tokens for one in texts) + len(texts) * (query.tokens if query else 0)
    failed = any(one.failed for one in (*texts, *([query] if query else ())))
    said = [one.text for one in texts]
    request = LoadRequest(
        endpoint=PATHS[shape.endpoint],
        body={**_body(shape, query.text if query else "", said), **shape.extra},
        shown=prompt_end(said[-1]),
        texts=len(texts),
        input_tokens=found + len(texts) * added if counts and not failed else None,
        tokenizer_failed=failed,
    )
    return request, found


def _body(shape: RequestShape, query: str, texts: Sequence[str]) -> dict[str, Any]:
    if shape.endpoint == "rerank":
        return {"query": query, shape.passages: texts}
    if shape.endpoint == "score":
        return {"text_1": query, "text_2": texts}
    if shape.endpoint == "classify":
        return {"input": texts}
    # As OpenAI's client asks for vectors: in a tenth of the time that lists of numbers take.
    return {"input": texts, "encoding_format": "base64"}

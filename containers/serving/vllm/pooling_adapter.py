"""ASGI middleware that lets a vLLM server of vectors or scores answer clients of TEI and LMI.

vLLM's own bodies (`input`, `query` with `documents`) pass through untouched on every path.  On
/invocations these are translated, and so are their replies:

    body                        to vLLM's                     reply
    {"inputs": TEXT or LIST}    {"input": …}                  [[0.1, …], …]
                                of a classifier               [[{"label": …, "score": …}], …]
    {"query": …, "texts": […]}  {"query": …, "documents": …}  [{"index": 0, "score": 0.9}, …]

Of a classifier the best label is returned, with its score: vLLM names no other.
"""

from __future__ import annotations

import json
import os
from collections.abc import MutableMapping
from typing import Any

from inputs_adapter import (
    LARGEST_BODY,
    LARGEST_BODY_VARIABLE,
    TARGET,
    App,
    BadRequest,
    Message,
    Receive,
    Send,
    as_tgi,
    error_message,
    header,
    is_json,
    read_body,
    read_object,
    replay,
    send_json,
    without,
    written,
)

INPUTS = frozenset(("inputs", "truncate", "normalize", "model", "dimensions"))
TEXTS = frozenset(("query", "texts", "truncate", "raw_scores", "return_text", "model"))


class PoolingAdapter:
    """Translates requests with `inputs` or `texts`, and their replies."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.largest_body = int(os.environ.get(LARGEST_BODY_VARIABLE, LARGEST_BODY))

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if not is_ours(scope):
            await self.app(scope, receive, send)
            return
        try:
            body = await read_body(scope, receive, self.largest_body)
            if body is None:
                return  # the client has gone
            payload = read_object(body) if is_json(scope) else {}
            request = translate(payload)
            if request is None:
                await self.app(scope, replay(body, receive), send)
                return
            translated = written(request)
        except BadRequest as error:
            await send_json(send, error.status, as_tgi(error))
            return
        kept = without(scope["headers"], b"content-length", b"transfer-encoding")
        headers = [*kept, (b"content-length", str(len(translated)).encode())]
        reply = Reply(send)
        await self.app({**scope, "headers": headers}, replay(translated, receive), reply)


def is_ours(scope: MutableMapping[str, Any]) -> bool:
    if scope["type"] != "http" or scope["method"] != "POST":
        return False
    if header(scope["headers"], b"content-encoding"):
        return False
    return bool(scope["path"].removeprefix(scope.get("root_path", "")) == TARGET)


def translate(payload: dict[str, Any]) -> dict[str, Any] | None:
    """Return a request in vLLM's words; None for one that is in them already."""
    if "inputs" in payload and "input" not in payload:
        refuse_others(payload, INPUTS)
        inputs = payload["inputs"]
        texts = [inputs] if isinstance(inputs, str) else inputs
        if not is_texts(texts):
            raise BadRequest("'inputs' must be a text or a list of texts")
        request: dict[str, Any] = {"input": texts}
    elif "texts" in payload and "documents" not in payload:
        refuse_others(payload, TEXTS)
        if not isinstance(payload.get("query"), str) or not is_texts(payload["texts"]):
            raise BadRequest("'query' must be a text and 'texts' a list of texts")
        request = {"query": payload["query"], "documents": payload["texts"]}
    else:
        return None
    if payload.get("truncate") is True:
        request["truncate_prompt_tokens"] = -1
    for name in ("model", "dimensions"):
        if payload.get(name) is not None:
            request[name] = payload[name]
    return request


def is_texts(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(one, str) for one in value)


def refuse_others(payload: dict[str, Any], known: frozenset[str]) -> None:
    """Refuse what is not translated, and what asks for other vectors or scores than the model's."""
    for name, value in payload.items():
        if name not in known and value is not None:
            raise BadRequest(f"the field {name[:80]!a} is not supported")
    if payload.get("normalize") is False or payload.get("raw_scores") is True:
        raise BadRequest("vectors and scores are as the model's files say")
    if payload.get("return_text") is True:
        raise BadRequest("'return_text' is not supported: documents are named by 'index'")


class Reply:
    """A `send` that turns vLLM's reply into TEI's."""

    def __init__(self, send: Send) -> None:
        self.send = send
        self.start: Message = {}
        self.body = bytearray()

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.start = message
        elif message["type"] == "http.response.body":
            self.body += message.get("body", b"")
            if not message.get("more_body", False):
                await self.send_whole()
        else:
            await self.send(message)

    async def send_whole(self) -> None:
        status = self.start["status"]
        try:
            document = json.loads(self.body)
        except ValueError:
            document = self.body.decode(errors="replace")
        if status == 200:
            answer = make_answer(document)
        else:
            answer = {"error": error_message(document), "code": status}
        kept = without(self.start["headers"], b"content-length", b"content-type")
        await send_json(self.send, status, answer, kept)


def make_answer(document: dict[str, Any]) -> object:
    """Return vectors, labels or ranks in TEI's form."""
    if "results" in document:
        return [
            {"index": one["index"], "score": one["relevance_score"]} for one in document["results"]
        ]
    rows = sorted(document["data"], key=lambda row: row["index"])
    if rows and "probs" in rows[0]:
        return [[{"label": row["label"], "score": max(row["probs"])}] for row in rows]
    return [row["embedding"] for row in rows]

"""The adapter answers clients of TEI and LMI from a server of vectors or scores."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.support.cases import cases_of
from tests.support.workers import SERVING, load

cases = cases_of(__file__)

adapter = load(SERVING / "vllm" / "pooling_adapter.py")


def answered(
    body: bytes, reply: object, *, status: int = 200, path: str = "/invocations"
) -> tuple[int, Any, Any]:
    """Send a body through the adapter; return status, answer, and what the server was sent."""
    sent: list[dict[str, Any]] = []
    received = bytearray()

    async def server(scope: Any, receive: Any, send: Any) -> None:
        message = await receive()
        received.extend(message["body"])
        headers = [(b"content-type", b"application/json"), (b"content-length", b"1")]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": json.dumps(reply).encode()})

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": path, "headers": []}
    asyncio.run(adapter.PoolingAdapter(server)(scope, receive, send))
    answer = json.loads(b"".join(one.get("body", b"") for one in sent))
    return sent[0]["status"], answer, json.loads(received) if received else None


@cases("translated")
def test_a_body_of_others_is_translated_and_so_is_its_reply(
    body: dict[str, Any], sent: dict[str, Any], reply: dict[str, Any], answer: Any
) -> None:
    assert answered(json.dumps(body).encode(), reply) == (200, answer, sent)


@cases("refused")
def test_what_is_not_translated_is_refused(body: Any, said: str) -> None:
    status, answer, sent = answered(json.dumps(body).encode(), {})

    assert (status, sent) == (400, None)
    assert said in answer["error"]


@pytest.mark.parametrize("path", ["/invocations", "/v1/embeddings"])
def test_vllms_own_bodies_pass_untouched(path: str) -> None:
    body = {"input": ["a"], "model": "m"}
    reply = {"data": [{"index": 0, "embedding": [1.0]}], "usage": {"prompt_tokens": 1}}

    assert answered(json.dumps(body).encode(), reply, path=path) == (200, reply, body)


def test_an_error_of_the_server_reads_as_tei_s() -> None:
    reply = {"error": {"message": "too long", "code": 400}}
    status, answer, _ = answered(b'{"inputs": "a"}', reply, status=400)

    assert (status, answer) == (400, {"error": "too long", "code": 400})

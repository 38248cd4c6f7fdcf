"""The middleware that captures: what a server answers goes by unchanged, and becomes rows."""

from __future__ import annotations

import asyncio
import importlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from packager.core.capture.settings import VARIABLE, CaptureSettings
from tests.support.cases import cases_of
from tests.support.workers import SERVING

cases = cases_of(__file__)

CHAT = b'{"messages": [{"role": "user", "content": "hi"}]}'
ANSWER = b'{"choices": [{"index": 0, "message": {"content": "ho"}, "finish_reason": "stop"}]}'


@pytest.fixture
def adapter(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(SERVING / "vllm"))
    monkeypatch.delitem(sys.modules, "capture_adapter", raising=False)
    return importlib.import_module("capture_adapter")


def server(status: int, kind: str, *pieces: bytes) -> Any:
    """Return an application that reads its request and answers in pieces."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await send({"type": "lifespan.shutdown.complete"})
            return
        while (await receive()).get("more_body"):
            pass
        headers = [(b"content-type", kind.encode()), (b"content-length", b"9")]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        for piece in pieces:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    return app


async def exchange(app: Any, method: str, path: str, body: bytes, **headers: str) -> list[Any]:
    """Return what was sent to a client; the request's body comes in two pieces."""
    pieces = iter((body[:10], body[10:]))
    sent: list[Any] = []

    async def receive() -> Any:
        piece = next(pieces)
        return {"type": "http.request", "body": piece, "more_body": piece == body[:10]}

    async def send(message: Any) -> None:
        sent.append(message)

    told = [(name.replace("_", "-").encode(), text.encode()) for name, text in headers.items()]
    scope = {"type": "http", "method": method, "path": path, "headers": told}
    await app(scope, receive, send)
    await app({"type": "lifespan"}, receive, send)
    return sent[:-1]


@cases("exchanges")
def test_answered_texts_alone_become_rows(
    adapter: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    path: str,
    status: int,
    headers: dict[str, str],
    rows: int,
) -> None:
    settings = CaptureSettings(directory=str(tmp_path), share=1.0)
    monkeypatch.setenv(VARIABLE, settings.text())
    app = adapter.CaptureAdapter(server(status, "application/json", ANSWER[:20], ANSWER[20:]))

    sent = asyncio.run(exchange(app, "POST", path, CHAT, authorization="Bearer sEcReT", **headers))

    assert b"".join(one.get("body", b"") for one in sent) == ANSWER
    lines = [line for file in tmp_path.rglob("*.jsonl") for line in file.read_text().splitlines()]
    assert len(lines) == rows
    for line in lines:
        assert "sEcReT" not in line
        captured = json.loads(line)["captureData"]
        assert json.loads(captured["endpointInput"]["data"]) == json.loads(CHAT)
        assert json.loads(captured["endpointOutput"]["data"]) == json.loads(ANSWER)


def test_metrics_say_what_was_written(
    adapter: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = CaptureSettings(directory=str(tmp_path), share=1.0)
    monkeypatch.setenv(VARIABLE, settings.text())
    app = adapter.CaptureAdapter(server(200, "text/plain", b"vllm:x 1\n"))

    sent = asyncio.run(exchange(app, "GET", "/metrics", b"x" * 11))

    text = b"".join(one.get("body", b"") for one in sent).decode()
    assert text.startswith("vllm:x 1\npackager_capture_rows_total 0\n")
    assert all(name != b"content-length" for name, _ in sent[0]["headers"])


@pytest.mark.parametrize("value", ["", "off", "{", '{"share": 7}'])
def test_without_settings_nothing_is_captured_and_requests_go_by(
    adapter: Any, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv(VARIABLE, value)
    app = adapter.CaptureAdapter(server(200, "application/json", ANSWER))

    sent = asyncio.run(exchange(app, "POST", "/v1/completions", CHAT))

    assert app.capture is None
    assert sent[1]["body"] == ANSWER

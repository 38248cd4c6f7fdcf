"""ASGI middleware that captures answered requests of a vLLM server.

`vllm … --middleware capture_adapter.CaptureAdapter`, with `PACKAGER_CAPTURE` as
`packager/core/capture/settings.py` reads it; those modules are on PYTHONPATH.  It keeps references
while an answer goes by; a thread makes the rows.  `/metrics` tells how many, and how many are lost.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from packager.core.capture.http import HttpCapture, KeptAnswer, capture_of
from packager.core.capture.settings import VARIABLE, metric_lines

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]

LARGEST_REQUEST = 4 << 20  # bytes; a larger one is passed on and not kept
CLOSE_S = 5.0  # for rows that wait when the server ends


class CaptureAdapter:
    """Keeps the exchanges of an application, where a capture is asked for."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.capture = capture_of(os.environ.get(VARIABLE, ""))

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        capture = self.capture
        if capture is None:
            await self.app(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self.app(scope, receive, closing(capture, send))
        elif scope["type"] == "http" and (scope["method"], scope["path"]) == ("GET", "/metrics"):
            await self.app(scope, receive, with_counts(capture, send))
        elif scope["type"] == "http" and scope["method"] == "POST":
            await self.pass_on(capture, scope, receive, send)
        else:
            await self.app(scope, receive, send)

    async def pass_on(
        self, capture: HttpCapture, scope: MutableMapping[str, Any], receive: Receive, send: Send
    ) -> None:
        exchange = Exchange(capture, scope)

        async def received() -> Message:
            return exchange.received(await receive())

        async def sent(message: Message) -> None:
            exchange.sent(message)
            await send(message)

        try:
            await self.app(scope, received, sent)
        finally:
            exchange.close()


class Exchange:
    """A request and its answer, from the messages that go by."""

    def __init__(self, capture: HttpCapture, scope: MutableMapping[str, Any]) -> None:
        self.capture = capture
        self.path = scope["path"].removeprefix(scope.get("root_path", "")).encode()
        self.headers = dict(scope["headers"])
        self.pieces: list[bytes] = []
        self.size = 0
        self.kept: KeptAnswer | None = None

    def received(self, message: Message) -> Message:
        piece = message.get("body", b"") if message["type"] == "http.request" else b""
        self.size += len(piece)
        if piece and self.size <= LARGEST_REQUEST:
            self.pieces.append(piece)
        return message

    def sent(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            if message["status"] == 200 and self.size <= LARGEST_REQUEST:
                body = b"".join(self.pieces)
                self.kept = self.capture.begin(b"POST", self.path, self.headers, body)
            self.pieces = []
            if self.kept is not None:
                headers = {name.lower(): value for name, value in message.get("headers", ())}
                self.kept.head(message["status"], headers)
        elif message["type"] == "http.response.body" and self.kept is not None:
            if message.get("body"):
                self.kept.take(bytes(message["body"]))
            self.kept.is_whole = not message.get("more_body", False)

    def close(self) -> None:
        if self.kept is not None:
            self.kept.close()


def closing(capture: HttpCapture, send: Send) -> Send:
    """Write what waits before the server says that it has ended."""

    async def sent(message: Message) -> None:
        if message["type"] == "lifespan.shutdown.complete":
            capture.close(CLOSE_S)
        await send(message)

    return sent


def with_counts(capture: HttpCapture, send: Send) -> Send:
    """Add the counts to the text of the metrics."""
    start: list[Message] = []

    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = [one for one in message["headers"] if one[0].lower() != b"content-length"]
            start.append({**message, "headers": headers})
            await send(start[0])
            return
        if message["type"] == "http.response.body" and not message.get("more_body", False):
            is_text = start and start[0]["status"] == 200 and not is_compressed(start[0]["headers"])
            lines = metric_lines(capture.counts()).encode() if is_text else b""
            message = {**message, "body": message.get("body", b"") + lines}
        await send(message)

    return sent


def is_compressed(headers: Any) -> bool:
    return any(name.lower() == b"content-encoding" for name, _ in headers)

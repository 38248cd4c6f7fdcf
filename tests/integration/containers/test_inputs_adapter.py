"""The adapter answers LMI and TGI clients from a server that speaks OpenAI's schema."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.support.cases import Case, cases_of
from tests.support.workers import SERVING, load

cases = cases_of(__file__, "requests")


adapter = load(SERVING / "vllm" / "inputs_adapter.py")

JSON = (b"content-type", b"application/json")
EVENTS = (b"content-type", b"text/event-stream; charset=utf-8")


@dataclass
class FakeServer:
    """An ASGI app that records the request and sends what it is told, piece by piece."""

    pieces: list[bytes] = field(default_factory=lambda: [b"{}"])
    status: int = 200
    kind: tuple[bytes, bytes] = JSON
    scope: dict[str, Any] = field(default_factory=dict)
    received: bytes = b""
    after_the_body: str = ""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.scope = scope
        if scope["type"] != "http":
            return
        more = True
        while more:
            message = await receive()
            self.received += message.get("body", b"")
            more = message.get("more_body", False)
        self.after_the_body = (await receive())["type"]
        headers = [self.kind, (b"x-request-id", b"7"), (b"content-length", b"1")]
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        for piece in self.pieces:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    @property
    def body(self) -> Any:
        return json.loads(self.received)


@dataclass
class Reply:
    status: int
    headers: dict[bytes, bytes]
    pieces: list[bytes]

    @property
    def text(self) -> bytes:
        return b"".join(self.pieces)

    @property
    def json(self) -> Any:
        return json.loads(self.text)

    @property
    def events(self) -> list[Any]:
        events = self.text.decode().split("\n\n")
        assert events.pop() == ""
        return [json.loads(event.removeprefix("data:")) for event in events]


def ask(
    server: FakeServer,
    body: object,
    path: str = "/invocations",
    *,
    method: str = "POST",
    headers: tuple[tuple[bytes, bytes], ...] = (JSON,),
    root_path: str = "",
) -> Reply:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    half = len(raw) // 2
    scope = {
        "type": "http",
        "method": method,
        "path": root_path + path,
        "raw_path": (root_path + path).encode(),
        "root_path": root_path,
        "headers": [*headers, (b"content-length", str(len(raw)).encode())],
    }

    async def messages() -> AsyncIterator[dict[str, Any]]:
        yield {"type": "http.request", "body": raw[:half], "more_body": True}
        yield {"type": "http.request", "body": raw[half:], "more_body": False}
        while True:
            yield {"type": "http.disconnect"}

    sent: list[dict[str, Any]] = []

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    async def run() -> None:
        incoming = messages()
        await adapter.InputsAdapter(server)(scope, incoming.__anext__, send)

    asyncio.run(run())
    start, *rest = sent
    return Reply(start["status"], dict(start["headers"]), [m["body"] for m in rest])


def completion(text: str = " world", **choice: Any) -> bytes:
    answer = {
        "choices": [{"text": text, "finish_reason": "length", "stop_reason": None, **choice}],
        "usage": {"prompt_tokens": 2, "completion_tokens": 3},
    }
    return json.dumps(answer).encode()


def chunk(text: str, ids: list[int], **choice: Any) -> bytes:
    document = {"choices": [{"text": text, "token_ids": ids, "finish_reason": None, **choice}]}
    return b"data: " + json.dumps(document).encode() + b"\n\n"


# Requests


def test_a_text_becomes_a_completion() -> None:
    """With its new length, and with the end of the client's connection."""
    server = FakeServer([completion()])

    ask(server, {"inputs": "hello"})

    assert server.scope["path"] == "/invocations"
    assert server.body == {"prompt": "hello", "stream": False, "max_tokens": 30}
    lengths = [value for name, value in server.scope["headers"] if name == b"content-length"]
    assert lengths == [str(len(server.received)).encode()]
    assert server.after_the_body == "http.disconnect"


def test_messages_become_a_chat() -> None:
    server = FakeServer([b'{"choices": [{"message": {"content": "ho"}}]}'])
    sent = {"messages": [{"role": "user", "content": "hi"}], "model": "tiny"}

    reply = ask(server, {"inputs": sent["messages"], "model": "tiny"})

    assert server.body == {**sent, "stream": False, "max_tokens": 30}
    assert reply.json == {"generated_text": "ho"}


@cases("translated")
def test_parameters_are_translated(sent: str, told: dict[str, Any]) -> None:
    server = FakeServer([completion()])

    ask(server, {"inputs": "hello", "parameters": json.loads(sent)})

    assert server.body == {"prompt": "hello", "stream": False, "max_tokens": 30, **told}


@cases("tgi_is_greedy_unless_told_to_sample")
def test_tgi_is_greedy_unless_told_to_sample(
    parameters: dict[str, Any], temperature: float | None
) -> None:
    server = FakeServer([completion()])

    ask(server, {"inputs": "hello", "parameters": parameters}, "/generate")

    assert server.body.get("temperature") == temperature
    assert server.body["max_tokens"] == 100


# Replies


def test_the_reply_has_lmis_form() -> None:
    reply = ask(FakeServer([completion()[:9], completion()[9:]]), {"inputs": "hello"})

    assert reply.status == 200
    assert reply.json == {"generated_text": " world"}
    assert reply.headers[b"content-length"] == str(len(reply.text)).encode()
    assert reply.headers[b"x-request-id"] == b"7"


@cases("answers")
def test_an_answer_has_the_form_that_is_asked_for(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPTION_TGI_COMPAT", case.get("tgi", ""))
    below, path = case.get("below", ""), case.get("path", "/invocations")
    server = FakeServer([completion(**case.get("choice", {}))])
    body = {"inputs": "hello", "parameters": case.get("parameters", {})}

    assert ask(server, body, path, root_path=below).text.decode() == case["expected"]
    places = (server.scope["path"], server.scope["raw_path"])
    assert places == (f"{below}/invocations", f"{below}/invocations".encode())


def test_half_of_a_surrogate_pair_in_an_answer_is_passed_on_as_json() -> None:
    reply = ask(FakeServer([completion("a\ud800")]), {"inputs": "hello"})

    assert reply.text == b'{"generated_text": "a\\ud800"}'


@cases("finish_reasons", stop_reason=None)
def test_finish_reasons_have_tgis_words(
    finish_reason: str, stop_reason: str | None, word: str
) -> None:
    answer = completion(finish_reason=finish_reason, stop_reason=stop_reason)
    body = {"inputs": "hello", "parameters": {"details": True}}

    assert ask(FakeServer([answer]), body).json["details"]["finish_reason"] == word


# Streams


@cases("streams", path="/invocations")
def test_a_stream_is_translated_event_by_event(
    path: str, sent: str, pieces: list[str], expected: list[str]
) -> None:
    """One for each token, and the text in the last; an error is an event, too."""
    server = FakeServer([f"data: {piece}\n\n".encode() for piece in pieces], kind=EVENTS)

    reply = ask(server, json.loads(sent), path)

    assert server.body["stream"] is True
    assert b"content-length" not in reply.headers
    assert reply.events == [json.loads(event) for event in expected]


def test_a_stream_goes_on_as_it_comes() -> None:
    """An event that arrives in pieces is sent with the piece that completes it."""
    first, second = chunk("a", [11]), chunk("b", [12], finish_reason="length")
    server = FakeServer([first + second[:20], second[20:]], kind=EVENTS)

    reply = ask(server, {"inputs": "hello", "stream": True})

    assert [piece.count(b"data:") for piece in reply.pieces] == [1, 1, 0]


# Errors


@cases("refused")
def test_what_cannot_be_translated_is_refused(body: bytes, message: str) -> None:
    """Without a traceback, and without an echo of what was sent."""
    reply, received = answer_in_a_deep_stack(body)

    error = reply.json["error"]
    told = error if isinstance(error, dict) else {**reply.json, "message": error}
    assert (reply.status, told["code"], received) == (400, 400, b"")
    assert message in told["message"]
    assert len(reply.text) < 400


def test_what_can_be_read_and_not_written_is_refused() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]

    with pytest.raises(adapter.BadRequest, match="nested too deeply"):
        adapter.written({"prompt": "x", "response_format": deep})


def answer_in_a_deep_stack(
    body: bytes, path: str = "/invocations", levels: int = 60
) -> tuple[Reply, bytes]:
    """Ask as behind vLLM's own middleware, so that there is less room than in a test."""
    if levels:
        return answer_in_a_deep_stack(body, path, levels - 1)
    server = FakeServer()
    return ask(server, body, path), server.received


def test_a_long_error_of_the_server_is_cut() -> None:
    answer = json.dumps({"error": {"message": "é" * 1_000_000}}).encode()

    reply = ask(FakeServer([answer], status=400), {"inputs": "hello"})

    assert reply.json["error"] == "é" * 4000 + "..."


@cases("fields", refused="")
def test_a_field_that_would_be_dropped_is_refused(fields: str, refused: str) -> None:
    reply = ask(FakeServer([completion()]), {"inputs": "hello", **json.loads(fields)})

    assert reply.status == (400 if refused else 200)
    if refused:
        assert reply.json["error"] == f"the field {refused!r} is not supported"


@cases("errors_of_the_server_have_lmis_form")
def test_errors_of_the_server_have_lmis_form(answer: bytes) -> None:
    reply = ask(FakeServer([answer], status=422), {"inputs": "hello"})

    assert (reply.status, reply.json) == (422, {"error": "too long", "code": 422})


@cases("too_large", limit="", length="")
def test_a_large_body_is_refused(
    limit: str, length: bytes, error: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By what is said of its length, the first time; else by what came."""
    monkeypatch.setenv("PACKAGER_MAX_REQUEST_BYTES", limit or str(1 << 20))
    headers = ((b"content-length", length), JSON) if length else (JSON,)

    reply = ask(FakeServer(), {"inputs": "x" * 40}, headers=headers)

    assert (reply.status, reply.json) == (413, {"error": error, "code": 413})


# Everything else


@cases(
    "other_bodies_and_paths_pass_untouched",
    path="/invocations",
    method="POST",
    header="content-type",
    value="application/json",
)
def test_other_bodies_and_paths_pass_untouched(
    body: bytes, path: str, method: str, header: bytes, value: bytes
) -> None:
    server = FakeServer([b"as it is"], status=415)

    reply = ask(server, body, path, method=method, headers=((header, value),))

    assert (server.received, server.scope["path"]) == (body, path)
    assert (reply.status, reply.text) == (415, b"as it is")
    assert reply.headers[b"content-length"] == b"1"


@pytest.mark.parametrize("path", ["/invocations", "/generate", "/generate_stream", "/"])
@cases("no object")
def test_a_body_that_is_no_object_is_refused_in_the_words_of_its_path(
    path: str, body: bytes, message: str
) -> None:
    reply, received = answer_in_a_deep_stack(body, path)

    own = {"message": message, "type": "BadRequestError", "param": None, "code": 400}
    error = {"error": own} if path == "/invocations" else {"error": message, "code": 400}
    assert (reply.status, reply.json) == (400, error)
    assert reply.headers[b"content-type"] == b"application/json"
    assert received == b""


def test_lmis_switch_changes_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPTION_TGI_COMPAT", "true")

    assert ask(FakeServer(), b"[]").json["error"]["type"] == "BadRequestError"


def test_a_charset_keeps_a_body_json() -> None:
    kind = (b"Content-Type", b"Application/JSON; charset=utf-8")

    assert ask(FakeServer(), b"[]", headers=(kind,)).status == 400


def test_other_protocols_pass_untouched() -> None:
    server = FakeServer()

    asyncio.run(adapter.InputsAdapter(server)({"type": "lifespan"}, None, None))

    assert server.scope == {"type": "lifespan"}


NAMED = b"x-amzn-sagemaker-adapter-identifier"


@pytest.mark.parametrize(
    ("path", "body", "headers", "named"),
    [
        ("/invocations", {"inputs": "a", "model": "sql"}, (), b"sql"),
        ("/invocations", {"prompt": "a", "model": "sql"}, (), b"sql"),
        ("/invocations", {"messages": [], "model": "nobody"}, (), b"nobody"),
        ("/generate", {"inputs": "a", "model": "sql"}, (), b"sql"),
        ("/", {"inputs": "a", "model": "sql"}, (), b"sql"),
        ("/generate", {"inputs": "a", "model": "sql"}, ((NAMED, b"other"),), b"other"),
        ("/invocations", {"prompt": "a"}, (), b""),
        ("/invocations", {"prompt": "a", "model": 7}, (), b""),
        ("/invocations", {"prompt": "a", "model": "sql\r\nx: y"}, (), b"sql??x:?y"),
        ("/invocations", {"prompt": "a", "model": " sql"}, (), b"?sql"),
        ("/invocations", {"prompt": "a", "model": "sq\u0142"}, (), b"sq?"),
        ("/v1/completions", {"prompt": "a", "model": "sql"}, (), b""),
    ],
)
def test_the_model_of_a_body_becomes_sagemakers_header(
    path: str, body: dict[str, Any], headers: tuple[tuple[bytes, bytes], ...], named: bytes
) -> None:
    server = FakeServer([completion()])
    ask(server, body, path, headers=(JSON, *headers))

    found = [value for name, value in server.scope["headers"] if name == NAMED]
    assert found == ([named] if named else [])

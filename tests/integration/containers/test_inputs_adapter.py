"""The adapter answers LMI and TGI clients from a server that speaks OpenAI's schema."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.support.cases import cases_of
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
    server = FakeServer([completion()])

    ask(server, {"inputs": "hello"})

    assert server.scope["path"] == "/invocations"
    assert server.body == {"prompt": "hello", "stream": False, "max_tokens": 30}


def test_messages_become_a_chat() -> None:
    server = FakeServer([json.dumps({"choices": [{"message": {"content": "ho"}}]}).encode()])
    messages = [{"role": "user", "content": "hi"}]

    reply = ask(server, {"inputs": messages, "model": "tiny"})

    assert server.body == {
        "messages": messages,
        "model": "tiny",
        "stream": False,
        "max_tokens": 30,
    }
    assert reply.json == {"generated_text": "ho"}


def test_the_length_of_the_body_is_corrected() -> None:
    """Else the server would read the translated body up to the old length."""
    server = FakeServer([completion()])

    ask(server, {"inputs": "hello"})

    lengths = [value for name, value in server.scope["headers"] if name == b"content-length"]
    assert lengths == [str(len(server.received)).encode()]


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


def test_lmis_switch_asks_for_tgis_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPTION_TGI_COMPAT", "true")

    reply = ask(FakeServer([completion()]), {"inputs": "hello"})

    assert reply.json == [{"generated_text": " world"}]


@cases("tgis_paths_are_answered")
def test_tgis_paths_are_answered(path: str, expected: object) -> None:
    server = FakeServer([completion()])

    assert ask(server, {"inputs": "hello"}, path).json == expected
    assert (server.scope["path"], server.scope["raw_path"]) == ("/invocations", b"/invocations")


def test_a_path_below_a_prefix_is_found() -> None:
    server = FakeServer([completion()])

    reply = ask(server, {"inputs": "hello"}, "/generate", root_path="/llm")

    assert reply.json == {"generated_text": " world"}
    assert server.scope["path"] == "/llm/invocations"


def test_the_full_text_begins_with_the_input() -> None:
    body = {"inputs": "hello", "parameters": {"return_full_text": True}}

    assert ask(FakeServer([completion()]), body).json == {"generated_text": "hello world"}


def test_details_count_and_list_the_tokens() -> None:
    logprobs = {"tokens": [" wor", "ld"], "token_logprobs": [-0.5, -0.25]}
    answer = completion(token_ids=[11, 12], logprobs=logprobs)
    body = {"inputs": "hello", "parameters": {"details": True, "seed": 3}}

    assert ask(FakeServer([answer]), body).json["details"] == {
        "finish_reason": "length",
        "generated_tokens": 3,
        "seed": 3,
        "prefill": [],
        "tokens": [
            {"id": 11, "text": " wor", "logprob": -0.5, "special": False},
            {"id": 12, "text": "ld", "logprob": -0.25, "special": False},
        ],
    }


@pytest.mark.parametrize(
    ("choice", "reason"),
    [
        ({"finish_reason": "length"}, "length"),
        ({"finish_reason": "stop", "stop_reason": None}, "eos_token"),
        ({"finish_reason": "stop", "stop_reason": "\n"}, "stop_sequence"),
    ],
    ids=["length", "end-of-text", "stop"],
)
def test_finish_reasons_have_tgis_words(choice: dict[str, Any], reason: str) -> None:
    body = {"inputs": "hello", "parameters": {"details": True}}

    assert ask(FakeServer([completion(**choice)]), body).json["details"]["finish_reason"] == reason


# Streams


def test_a_stream_has_one_event_for_each_token_and_the_text_in_the_last() -> None:
    server = FakeServer(
        [
            chunk("a", [11], prompt_token_ids=[1, 2]),
            chunk("b", [12], finish_reason="length"),
            b'data: {"choices": [], "usage": {}}\n\n',
            b"data: [DONE]\n\n",
        ],
        kind=EVENTS,
    )
    body = {"inputs": "hello", "parameters": {"details": True}, "stream": True}

    reply = ask(server, body)

    assert server.body["stream"] is True
    assert b"content-length" not in reply.headers
    assert reply.events == [
        {
            "index": 1,
            "token": {"id": 11, "text": "a", "logprob": None, "special": False},
            "generated_text": None,
            "details": None,
        },
        {
            "index": 2,
            "token": {"id": 12, "text": "b", "logprob": None, "special": False},
            "generated_text": "ab",
            "details": {
                "finish_reason": "length",
                "generated_tokens": 2,
                "seed": None,
                "input_length": 2,
            },
        },
    ]


def test_a_stream_goes_on_as_it_comes() -> None:
    """An event that arrives in pieces is sent with the piece that completes it."""
    first, second = chunk("a", [11]), chunk("b", [12], finish_reason="length")
    server = FakeServer([first + second[:20], second[20:]], kind=EVENTS)

    reply = ask(server, {"inputs": "hello", "stream": True})

    assert [piece.count(b"data:") for piece in reply.pieces] == [1, 1, 0]


def test_a_stream_of_a_chat_is_translated() -> None:
    document = {
        "prompt_token_ids": [1],
        "choices": [
            {
                "delta": {"content": "ho"},
                "token_ids": [11],
                "finish_reason": "stop",
                "stop_reason": None,
                "logprobs": {"content": [{"token": "ho", "logprob": -0.5}]},
            }
        ],
    }
    server = FakeServer([b"data: " + json.dumps(document).encode() + b"\n\n"], kind=EVENTS)

    (event,) = ask(server, {"inputs": [{"role": "user", "content": "hi"}], "stream": True}).events

    assert event["token"] == {"id": 11, "text": "ho", "logprob": -0.5, "special": False}
    assert event["generated_text"] == "ho"


def test_texts_of_tokens_add_up_when_a_character_has_several() -> None:
    logprobs = {"tokens": ["\ufffd", "\ufffd"], "token_logprobs": [-0.5, -0.25]}
    pieces = [chunk("é", [11, 12], logprobs=logprobs, finish_reason="length")]

    events = ask(FakeServer(pieces, kind=EVENTS), {"inputs": "x", "stream": True}).events

    assert [event["token"]["text"] for event in events] == ["", "é"]
    assert [event["generated_text"] for event in events] == [None, "é"]


def test_generate_stream_streams_without_being_asked() -> None:
    server = FakeServer([chunk("a", [11], finish_reason="length")], kind=EVENTS)

    assert len(ask(server, {"inputs": "hello"}, "/generate_stream").events) == 1
    assert server.body["stream"] is True


def test_an_error_in_a_stream_is_an_event() -> None:
    error = b'data: {"error": {"message": "the engine died", "code": 500}}\n\n'
    server = FakeServer([chunk("a", [11]), error], kind=EVENTS)

    events = ask(server, {"inputs": "hello", "stream": True}).events

    assert events[1] == {"error": "the engine died", "code": 500}


# Errors


@cases("refused")
def test_what_cannot_be_translated_is_refused(body: str, message: str) -> None:
    server = FakeServer()

    reply = ask(server, body.encode())

    assert reply.status == 400
    assert message in reply.json["error"]
    assert reply.json["code"] == 400
    assert server.received == b""


@cases("hostile")
def test_a_hostile_text_gets_an_error_and_no_traceback(body: str, message: str) -> None:
    reply, received = answer_in_a_deep_stack(body.encode())

    assert (reply.status, reply.json["code"], received) == (400, 400, b"")
    assert message in reply.json["error"]


@pytest.mark.parametrize(
    "body",
    [
        b'{"inputs": "x", "parameters": {"response_format": %b1%b}}'
        % (b'{"a":' * 5000, b"}" * 5000),
        b'{"inputs": "x", "model": %b1%b}' % (b"[" * 940, b"]" * 940),
    ],
    ids=["deep parameter", "just too deep"],
)
def test_a_deep_body_gets_an_error_and_no_traceback(body: bytes) -> None:
    reply, received = answer_in_a_deep_stack(body)

    error = reply.json["error"]
    told = error if isinstance(error, dict) else {**reply.json, "message": error}
    assert (reply.status, told["code"], received) == (400, 400, b"")
    assert "the body is nested too deeply" in told["message"]


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


@pytest.mark.parametrize(
    "body",
    [
        {"inputs": "x", "parameters": {"p" * 1_000_000: 1}},
        {"inputs": "x", "parameters": {"unknown": "v" * 1_000_000}},
        {"inputs": "x", "parameters": {"unknown": ["v" * 1_000_000]}},
        {"inputs": "x", "parameters": {"unknown": {"v" * 1_000_000: 1}}},
        {"inputs": "x", "f" * 1_000_000: 1},
    ],
    ids=["name", "text", "list", "object", "field"],
)
def test_an_error_is_no_echo(body: object) -> None:
    reply = ask(FakeServer(), body)

    assert reply.status == 400
    assert "is not supported" in reply.json["error"]
    assert len(reply.text) < 400


def test_a_long_error_of_the_server_is_cut() -> None:
    answer = json.dumps({"error": {"message": "é" * 1_000_000}}).encode()

    reply = ask(FakeServer([answer], status=400), {"inputs": "hello"})

    assert reply.json["error"] == "é" * 4000 + "..."


def test_half_of_a_surrogate_pair_in_an_answer_is_passed_on_as_json() -> None:
    reply = ask(FakeServer([completion("a\ud800")]), {"inputs": "hello"})

    assert reply.text == b'{"generated_text": "a\\ud800"}'


@cases("fields", refused="")
def test_a_field_that_would_be_dropped_is_refused(fields: str, refused: str) -> None:
    reply = ask(FakeServer([completion()]), {"inputs": "hello", **json.loads(fields)})

    assert reply.status == (400 if refused else 200)
    if refused:
        assert reply.json["error"] == f"the field {refused!r} is not supported"


def test_a_length_of_many_digits_is_too_large() -> None:
    headers = (JSON, (b"content-length", b"9" * 5000))

    reply = ask(FakeServer(), {"inputs": "hello"}, headers=headers)

    assert reply.status == 413


@cases("errors_of_the_server_have_lmis_form")
def test_errors_of_the_server_have_lmis_form(answer: bytes) -> None:
    reply = ask(FakeServer([answer], status=422), {"inputs": "hello"})

    assert (reply.status, reply.json) == (422, {"error": "too long", "code": 422})


@pytest.mark.parametrize("said", [True, False], ids=["by-its-header", "by-its-length"])
def test_a_large_body_is_refused(said: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PACKAGER_MAX_REQUEST_BYTES", "20")
    server = FakeServer()
    extra = () if said else ((b"content-length", b"5"),)  # the first one counts

    reply = ask(server, {"inputs": "x" * 40}, headers=(*extra, JSON))

    assert reply.status == 413
    assert reply.json == {"error": "the body has more than 20 bytes", "code": 413}


# Everything else


@cases("other_bodies_and_paths_pass_untouched")
def test_other_bodies_and_paths_pass_untouched(body: bytes, path: str) -> None:
    server = FakeServer([b"as it is"])

    reply = ask(server, body, path)

    assert (server.received, server.scope["path"]) == (body, path)
    assert reply.text == b"as it is"
    assert reply.headers[b"content-length"] == b"1"


PATHS = ("/invocations", "/generate", "/generate_stream", "/")


@pytest.mark.parametrize("path", PATHS)
@cases("no object")
def test_a_body_that_is_no_object_is_refused_in_the_words_of_its_path(
    path: str, body: str, message: str
) -> None:
    check_refusal(path, body.encode(), message)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"prompt": "\xff"}', "the body is not JSON: it is not UTF-8"),
        (
            b'{"prompt": "x", "max_tokens": ' + b"9" * 5000 + b"}",
            "the body has a number of too many digits",
        ),
        (b"[" * 100_000, "the body is nested too deeply"),
        (b'{"a":' * 100_000, "the body is nested too deeply"),
    ],
    ids=["latin", "digits", "deep lists", "deep objects"],
)
def test_a_body_that_no_json_can_be_is_refused_in_the_words_of_its_path(
    path: str, body: bytes, message: str
) -> None:
    check_refusal(path, body, message)


def check_refusal(path: str, body: bytes, message: str) -> None:
    reply, received = answer_in_a_deep_stack(body, path)

    own = {"message": message, "type": "BadRequestError", "param": None, "code": 400}
    error = {"error": own} if path == "/invocations" else {"error": message, "code": 400}
    assert (reply.status, reply.json) == (400, error)
    assert reply.headers[b"content-type"] == b"application/json"
    assert received == b""


def test_lmis_switch_changes_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPTION_TGI_COMPAT", "true")

    assert ask(FakeServer(), b"[]").json["error"]["type"] == "BadRequestError"


@pytest.mark.parametrize("kind", [b"text/csv", b"application/octet-stream"])
def test_what_is_said_to_be_no_json_passes_untouched(kind: bytes) -> None:
    server = FakeServer([b"as it is"], status=415)

    reply = ask(server, b"1,2", headers=((b"content-type", kind),))

    assert (server.received, reply.status) == (b"1,2", 415)


def test_a_charset_keeps_a_body_json() -> None:
    kind = (b"Content-Type", b"Application/JSON; charset=utf-8")

    assert ask(FakeServer(), b"[]", headers=(kind,)).status == 400


def test_a_compressed_body_passes_untouched() -> None:
    server = FakeServer()

    ask(server, b'{"inputs": "x"}', headers=((b"content-encoding", b"gzip"),))

    assert server.received == b'{"inputs": "x"}'


def test_other_methods_pass_untouched() -> None:
    server = FakeServer()

    ask(server, b'{"inputs": "x"}', method="GET")

    assert server.received == b'{"inputs": "x"}'


def test_other_protocols_pass_untouched() -> None:
    server = FakeServer()

    asyncio.run(adapter.InputsAdapter(server)({"type": "lifespan"}, None, None))

    assert server.scope == {"type": "lifespan"}


def test_the_server_notices_that_a_client_has_left() -> None:
    """Else it would go on generating for nobody."""
    server = FakeServer([completion()])

    ask(server, {"inputs": "hello"})

    assert server.after_the_body == "http.disconnect"

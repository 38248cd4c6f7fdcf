"""The smoke test against containers that misbehave; the engine is a fake, the answers are HTTP."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any

import pytest
from docker.errors import APIError

from packager.errors import SmokeFailed, Unavailable, UsageError
from packager.serving import containers
from packager.serving.smoke import SmokeResult, ask_endpoint, smoke

CHAT = {
    "choices": [{"message": {"content": "hi"}}],
    "usage": {"completion_tokens": 2},
}
INVOCATIONS = {"generated_text": "yo", "details": {"generated_tokens": 3}}


@dataclass
class Server:
    """What the container answers, by path."""

    answers: dict[str, Any] = field(
        default_factory=lambda: {
            "/ping": {},
            "/v1/models": {"data": [{"id": "m"}]},
            "/v1/chat/completions": CHAT,
            "/invocations": INVOCATIONS,
        }
    )
    port: int = 0
    asked: list[tuple[str, Any]] = field(default_factory=list)


@pytest.fixture
def server() -> Iterator[Server]:
    serving = Server()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            question = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            serving.asked.append((self.path, json.loads(question or "null")))
            body = json.dumps(serving.answers[self.path]).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET

        def log_message(self, format: str, *args: object) -> None: ...

    httpd = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    serving.port = httpd.server_address[1]
    threading.Thread(target=httpd.serve_forever, args=(0.02,), daemon=True).start()
    yield serving
    httpd.shutdown()
    httpd.server_close()


@dataclass
class FakeContainer:
    port: int
    log: bytes = b"the log\n"
    status: str = "running"
    short_id: str = "c0ffee"
    lost: Exception | None = None
    attrs: dict[str, Any] = field(default_factory=lambda: {"State": {"ExitCode": 3}})

    @property
    def ports(self) -> dict[str, list[dict[str, str]]]:
        return {"8080/tcp": [{"HostPort": str(self.port)}]}

    def start(self) -> None: ...

    def reload(self) -> None:
        if self.lost:
            raise self.lost

    def logs(self, tail: int) -> bytes:
        return self.log


class FakeEngine:
    """One image, one container. Remembers the names it was asked to remove."""

    def __init__(self, container: FakeContainer) -> None:
        self.container = container
        self.created = ""
        self.removed: list[str] = []
        self.interrupt_create: BaseException | None = None
        self.image_error: Exception | None = None
        self.images = SimpleNamespace(get=self._image)
        self.containers = SimpleNamespace(create=self._create)
        self.api = SimpleNamespace(
            networks=lambda: [{"Driver": "bridge"}],
            remove_container=lambda name, **options: self.removed.append(name),
        )

    def _image(self, name: str) -> None:
        if self.image_error:
            raise self.image_error

    def _create(self, image: str, *, name: str, **options: object) -> FakeContainer:
        self.created = name
        if self.interrupt_create:
            raise self.interrupt_create
        return self.container


def run(engine: FakeEngine) -> SmokeResult:
    return smoke(
        engine, "i:1", prompt="p", max_tokens=4, deadline_s=60.0, on_progress=lambda line: None
    )


def refusal(explanation: str) -> APIError:
    return APIError("400 Client Error", explanation=explanation)


def test_a_container_that_answers_is_removed(server: Server) -> None:
    engine = FakeEngine(FakeContainer(server.port))

    result = run(engine)

    assert [answer.tokens for answer in result.answers] == [2, 3]
    assert engine.removed == [engine.created]


@pytest.mark.parametrize(
    ("path", "answer"),
    [
        pytest.param("/v1/models", [], id="models: a list"),
        pytest.param("/v1/models", {"data": None}, id="models: null"),
        pytest.param("/v1/chat/completions", [], id="chat: a list"),
        pytest.param("/v1/chat/completions", {**CHAT, "usage": None}, id="chat: no usage"),
        pytest.param("/invocations", "yo", id="invocations: a string"),
        pytest.param("/invocations", {"error": "no"}, id="invocations: no text"),
    ],
)
def test_an_answer_of_another_form_is_a_smoke_failure_with_the_log(
    server: Server, path: str, answer: object
) -> None:
    server.answers[path] = answer
    engine = FakeEngine(FakeContainer(server.port))

    with pytest.raises(SmokeFailed, match="answer is unusable") as caught:
        run(engine)

    assert caught.value.log == "the log\n"
    assert engine.removed == [engine.created]


def test_a_short_prompt_is_the_first_question_and_asks_for_one_token(server: Server) -> None:
    """An engine that died on prompts of a few tokens passed: a longer prompt came first."""
    result = run(FakeEngine(FakeContainer(server.port)))

    questions = [(path, body) for path, body in server.asked if body is not None]
    first, settings = questions[0][1]["inputs"], questions[0][1]["parameters"]
    assert (len(first), settings["max_new_tokens"]) == (1, 1)
    assert [path for path, _ in questions] == [
        "/invocations",
        "/v1/chat/completions",
        "/invocations",
    ]
    assert [answer.endpoint for answer in result.answers] == [
        "/v1/chat/completions",
        "/invocations",
    ]


def test_an_empty_answer_has_no_text(server: Server) -> None:
    chat = {**CHAT, "choices": [{"message": {"content": None}}]}
    server.answers["/v1/chat/completions"] = chat

    assert run(FakeEngine(FakeContainer(server.port))).answers[0].text == ""


@pytest.mark.parametrize("name", ["reasoning", "reasoning_content"])
def test_reasoning_is_shown_where_the_answer_has_not_begun(server: Server, name: str) -> None:
    message = {"content": None, name: "Let me think"}
    server.answers["/v1/chat/completions"] = {**CHAT, "choices": [{"message": message}]}

    assert run(FakeEngine(FakeContainer(server.port))).answers[0].text == "Let me think"


PARSER = b"starting\nvllm: error: unrecognized arguments: --no\n"


@pytest.mark.parametrize(
    ("state", "log", "said"),
    [
        ({"ExitCode": 2}, PARSER, "status 2 before it answered: vllm: error: unrecognized"),
        ({"ExitCode": 3}, b"the log\n", "status 3 before it answered"),
        ({"ExitCode": 137, "OOMKilled": True}, PARSER, "kernel killed it, since its memory ran"),
    ],
    ids=["parser", "nothing-said", "memory"],
)
def test_an_ended_container_is_an_error_with_its_cause(
    state: dict[str, Any], log: bytes, said: str
) -> None:
    container = FakeContainer(port=1, status="exited", log=log, attrs={"State": state})

    with pytest.raises(SmokeFailed) as caught:
        run(FakeEngine(container))

    assert said in caught.value.message
    assert caught.value.log == log.decode()


def test_a_driver_that_is_too_old_has_a_hint_of_its_own(server: Server) -> None:
    engine = FakeEngine(FakeContainer(server.port))
    reason = "nvidia-container-cli: requirement error: unsatisfied condition: cuda>=12.9"
    engine.interrupt_create = refusal(reason)

    with pytest.raises(SmokeFailed, match="unsatisfied condition") as caught:
        run(engine)

    assert "packager doctor" in caught.value.hint


def test_a_log_line_without_end_is_cut() -> None:
    container = FakeContainer(port=1, status="exited", log=b"x" * 10**6)

    with pytest.raises(SmokeFailed) as caught:
        run(FakeEngine(container))

    assert len(caught.value.log) == 16 * 1024


def test_an_interrupt_while_the_container_is_made_leaves_none(server: Server) -> None:
    engine = FakeEngine(FakeContainer(server.port))
    engine.interrupt_create = KeyboardInterrupt()

    with pytest.raises(KeyboardInterrupt):
        run(engine)

    assert engine.removed == [engine.created]


@pytest.mark.parametrize(
    ("name", "error", "expected"),
    [
        ("image_error", refusal("invalid reference format"), UsageError),
        ("interrupt_create", refusal("No command specified"), SmokeFailed),
    ],
)
def test_what_the_engine_refuses_is_explained(
    server: Server, name: str, error: Exception, expected: type[Exception]
) -> None:
    engine = FakeEngine(FakeContainer(server.port))
    setattr(engine, name, error)

    with pytest.raises(expected, match=str(getattr(error, "explanation", ""))):
        run(engine)


@pytest.mark.parametrize(
    ("lost", "expected"),
    [(refusal("No such container"), SmokeFailed), (ConnectionError("reset"), Unavailable)],
    ids=["container removed by others", "engine stopped"],
)
def test_what_goes_away_during_the_test_is_explained(
    lost: Exception, expected: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(containers, "_POLL_S", 0.0)

    with pytest.raises(expected):
        run(FakeEngine(FakeContainer(port=1, lost=lost)))


def test_a_server_that_runs_is_asked_by_its_address(server: Server) -> None:
    server.answers["/invocations"] = CHAT

    answer = ask_endpoint(f"http://127.0.0.1:{server.port}", prompt="why?", max_tokens=5)

    assert (answer.model, answer.text) == ("m", "hi")
    asked = [body for path, body in server.asked if path == "/invocations"]
    assert [body["max_tokens"] for body in asked] == [1, 5]
    assert asked[1]["messages"] == [{"role": "user", "content": "why?"}]
    assert {body["model"] for body in asked} == {"m"}


@pytest.mark.parametrize("said", [{"choices": []}, {"choices": [{"message": 1}]}, []])
def test_an_answer_that_is_none_fails_the_smoke_test_of_an_endpoint(
    server: Server, said: Any
) -> None:
    server.answers["/invocations"] = said

    with pytest.raises(SmokeFailed, match="is unusable"):
        ask_endpoint(f"http://127.0.0.1:{server.port}", prompt="why?", max_tokens=5)

"""The smoke test against containers that misbehave; the engine is a fake, the answers are HTTP."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from packager.cli.serving import containers
from packager.cli.serving.smoke import SmokeResult, ask_endpoint, smoke
from packager.core.errors import SmokeFailed, Unavailable, UsageError
from tests.support.cases import cases, read_tables
from tests.support.doubles.docker_runs import FakeContainer, FakeEngine, refusal
from tests.support.doubles.json_server import JsonServer, json_server

TABLES = read_tables(__file__)


CHAT = {"choices": [{"message": {"content": "hi"}}], "usage": {"completion_tokens": 2}}
INVOCATIONS = {"generated_text": "yo", "details": {"generated_tokens": 3}}


@pytest.fixture
def server() -> Iterator[JsonServer]:
    documents = {
        "/ping": {},
        "/v1/models": {"data": [{"id": "m"}]},
        "/v1/chat/completions": CHAT,
        "/invocations": INVOCATIONS,
    }
    with json_server({path: (200, one) for path, one in documents.items()}) as serving:
        yield serving


class Engine(FakeEngine):
    """Has the image `i:1`; its containers answer at a port, or have `ended`, or are lost."""

    def __init__(
        self,
        port: int = 1,
        *,
        log: bytes = b"the log\n",
        ended: dict[str, Any] | None = None,
        lost: Exception | None = None,
        create_error: BaseException | None = None,
    ) -> None:
        super().__init__(images_there={"i:1": object()}, create_error=create_error)
        self._port, self._log, self._ended, self._lost = port, log, ended, lost

    def _created(self, image: str, **asked: Any) -> FakeContainer:
        made: Any = super()._created(image, **asked)
        made.ports = {"8080/tcp": [{"HostPort": str(self._port)}]}
        made.log, self.lost = self._log, self._lost
        if self._ended is not None:
            made.start = lambda: vars(made).update(self._ended, status="exited")
        return made  # type: ignore[no-any-return]


def run(engine: Engine) -> SmokeResult:
    return smoke(
        engine, "i:1", prompt="p", max_tokens=4, deadline_s=60.0, on_progress=lambda line: None
    )


def test_a_container_that_answers_is_removed(server: JsonServer) -> None:
    engine = Engine(server.port)

    result = run(engine)

    assert [answer.tokens for answer in result.answers] == [2, 3]
    assert (len(engine.removed), engine.there) == (1, {})


def test_a_model_that_sees_is_asked_about_a_picture(server: JsonServer) -> None:
    result = smoke(
        Engine(server.port),
        "i:1",
        prompt="p",
        max_tokens=4,
        deadline_s=60.0,
        on_progress=lambda line: None,
        images="2x16x8",
    )

    assert [answer.endpoint for answer in result.answers][-1] == (
        "/v1/chat/completions with 2x16x8"
    )
    asked = [body for path, body in server.asked if path == "/v1/chat/completions"]
    *pictures, words = asked[-1]["messages"][-1]["content"]
    assert words["text"] == "What is in the picture?"
    assert [one["image_url"]["url"][:22] for one in pictures] == 2 * ["data:image/png;base64,"]


@cases("other_forms")
def test_an_answer_of_another_form_fails(server: JsonServer, path: str, answer: str) -> None:
    server.answers[path] = (200, json.loads(answer))
    engine = Engine(server.port)

    with pytest.raises(SmokeFailed, match="answer is unusable") as caught:
        run(engine)

    assert caught.value.log == "the log\n"
    assert (len(engine.removed), engine.there) == (1, {})


def test_a_short_prompt_is_the_first_question_and_asks_for_one_token(server: JsonServer) -> None:
    """An engine that died on prompts of a few tokens passed: a longer prompt came first."""
    result = run(Engine(server.port))

    questions = [(path, body) for path, body in server.asked if body is not None]
    first, settings = questions[0][1]["inputs"], questions[0][1]["parameters"]
    assert (len(first), settings["max_new_tokens"]) == (1, 1)
    assert [path for path, _ in questions] == TABLES[
        "a_short_prompt_is_the_first_question_and_asks_for_one_token"
    ]
    assert [answer.endpoint for answer in result.answers] == [
        "/v1/chat/completions",
        "/invocations",
    ]


def test_an_empty_answer_has_no_text(server: JsonServer) -> None:
    chat = {**CHAT, "choices": [{"message": {"content": None}}]}
    server.answers["/v1/chat/completions"] = (200, chat)

    assert run(Engine(server.port)).answers[0].text == ""


@pytest.mark.parametrize("name", ["reasoning", "reasoning_content"])
def test_reasoning_is_shown_where_the_answer_has_not_begun(server: JsonServer, name: str) -> None:
    message = {"content": None, name: "Let me think"}
    chat = {**CHAT, "choices": [{"message": message}]}
    server.answers["/v1/chat/completions"] = (200, chat)

    assert run(Engine(server.port)).answers[0].text == "Let me think"


@cases("ended")
def test_an_ended_container_has_a_cause(state: dict[str, Any], log: bytes, said: str) -> None:
    with pytest.raises(SmokeFailed) as caught:
        run(Engine(ended=state, log=log))
    assert said in caught.value.message
    assert caught.value.log == log.decode()


def test_a_driver_that_is_too_old_has_a_hint_of_its_own() -> None:
    reason = "nvidia-container-cli: requirement error: unsatisfied condition: cuda>=12.9"

    with pytest.raises(SmokeFailed, match="unsatisfied condition") as caught:
        run(Engine(create_error=refusal(500, reason)))

    assert "packager doctor" in caught.value.hint


def test_a_log_line_without_end_is_cut() -> None:
    with pytest.raises(SmokeFailed) as caught:
        run(Engine(ended={"exit_code": 3}, log=b"x" * 10**6))
    assert len(caught.value.log) == 16 * 1024


def test_an_interrupt_while_the_container_is_made_leaves_none() -> None:
    engine = Engine(create_error=KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        run(engine)
    assert (len(engine.removed), engine.there) == (1, {})


def test_a_name_that_the_engine_does_not_take_is_a_usage_error() -> None:
    def get(name: str) -> None:
        raise refusal(400, "invalid reference format")

    engine = Engine()
    engine.images.get = get

    with pytest.raises(UsageError, match="invalid reference format"):
        run(engine)


@pytest.mark.parametrize(
    ("lost", "expected"),
    [(refusal(404, "No such container"), SmokeFailed), (ConnectionError("reset"), Unavailable)],
    ids=["container removed by others", "engine stopped"],
)
def test_what_goes_away_during_the_test_is_explained(
    lost: Exception, expected: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(containers, "_POLL_S", 0.0)
    with pytest.raises(expected):
        run(Engine(lost=lost))


def test_a_server_that_runs_is_asked_by_its_address(server: JsonServer) -> None:
    server.answers["/invocations"] = (200, CHAT)

    answer = ask_endpoint(server.url, prompt="why?", max_tokens=5)

    assert (answer.model, answer.text) == ("m", "hi")
    asked = [body for path, body in server.asked if path == "/invocations"]
    assert [body["max_tokens"] for body in asked] == [1, 5]
    assert asked[1]["messages"] == [{"role": "user", "content": "why?"}]
    assert {body["model"] for body in asked} == {"m"}


@pytest.mark.parametrize("said", [{"choices": []}, {"choices": [{"message": 1}]}, []])
def test_an_unusable_answer_fails_the_test_of_an_endpoint(server: JsonServer, said: Any) -> None:
    server.answers["/invocations"] = (200, said)

    with pytest.raises(SmokeFailed, match="is unusable"):
        ask_endpoint(server.url, prompt="why?", max_tokens=5)

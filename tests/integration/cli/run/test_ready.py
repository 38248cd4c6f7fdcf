"""When a server is ready, and which of its endpoints is printed; the answers are HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from packager.cli.run.clients import Address
from packager.cli.run.containers import ContainerSpec, Started, started
from packager.cli.run.serving import answers, wait_until_ready
from packager.cli.serving import containers
from packager.core.errors import SmokeFailed
from packager.core.events import ignore
from tests.support.cases import cases
from tests.support.doubles.docker_runs import FakeContainer, FakeEngine
from tests.support.doubles.json_server import JsonServer, json_server

MODELS = {"data": [{"id": "tiny-llama"}]}


@pytest.fixture
def server() -> Iterator[JsonServer]:
    with json_server({"/ping": (200, {})}) as serving:
        yield serving


def container_of(server: JsonServer) -> Iterator[Started]:
    wanted = ContainerSpec(name="tiny", image="i:1", model="tiny-llama", env={})
    with started(FakeEngine(), wanted, ignore) as run:
        run.url = server.url
        run.container.log = b"loading\nshard 3 of 9\n\n"
        yield run


def test_a_chat_is_asked_for_first_with_the_request_that_is_printed(server: JsonServer) -> None:
    server.answers |= {"/v1/models": (200, MODELS), "/v1/chat/completions": (200, {})}

    for run in container_of(server):
        ready = wait_until_ready(run, 60.0, ignore)
        assert ready.address == Address(
            url=run.url, endpoint="/v1/chat/completions", model="tiny-llama"
        )

    path, body = server.asked[-1]
    assert path == "/v1/chat/completions"
    assert (body["model"], body["max_tokens"]) == ("tiny-llama", 1)


@cases("answers")
def test_what_is_printed_is_what_answers(
    server: JsonServer, also: dict[str, tuple[int, Any]], endpoint: str, model: str
) -> None:
    server.answers |= also

    for run in container_of(server):
        address = wait_until_ready(run, 60.0, ignore).address
        assert (address.endpoint, address.model) == (endpoint, model)


def test_a_server_that_refuses_every_request_failed(server: JsonServer) -> None:
    server.answers |= {"/v1/models": (200, MODELS), "/v1/chat/completions": (500, "kernel")}

    for run in container_of(server):
        with pytest.raises(SmokeFailed, match='completions answered 500: "kernel"') as no:
            wait_until_ready(run, 60.0, ignore)
        assert no.value.log == "loading\nshard 3 of 9\n\n"


def test_a_list_of_models_that_cannot_be_read_is_none(server: JsonServer) -> None:
    server.answers["/v1/models"] = (200, [])

    for run in container_of(server):
        with pytest.raises(SmokeFailed, match="/invocations answered 404"):
            wait_until_ready(run, 60.0, ignore)


def test_a_slow_server_is_explained(server: JsonServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(containers, "_POLL_S", 0.0)
    server.answers["/ping"] = (503, {})

    for run in container_of(server):
        with pytest.raises(SmokeFailed) as caught:
            wait_until_ready(run, 0.0, ignore)
    assert caught.value.message == (
        "/ping did not answer within 0 s; its log ends with 'shard 3 of 9'"
    )


def test_a_server_that_ended_first_tells_its_status_alone(server: JsonServer) -> None:
    server.answers["/ping"] = (503, {})

    for run in container_of(server):
        run.container.status, run.container.exit_code = "exited", 3
        with pytest.raises(SmokeFailed) as caught:
            wait_until_ready(run, 60.0, ignore)
    assert caught.value.message == "the container ended with status 3 before it answered"


def test_a_server_that_was_removed_first_is_told(server: JsonServer) -> None:
    server.answers["/ping"] = (503, {})

    for run in container_of(server):
        container: FakeContainer = run.container
        container.engine.there.clear()
        with pytest.raises(SmokeFailed, match="stopped and removed by another command before"):
            wait_until_ready(run, 60.0, ignore)


def test_a_server_answers_when_it_says_that_it_is_ready(server: JsonServer) -> None:

    assert answers(server.url)
    server.answers["/ping"] = (503, {})
    assert not answers(server.url)
    assert not answers("")
    assert not answers("http://127.0.0.1:1")

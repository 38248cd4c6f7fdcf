"""Asking a server that streams: what is taken from its answer, and what is a failure."""

from __future__ import annotations

import threading

import pytest

from packager.core.probes import probe_request
from packager.core.samples import Message, Sample
from packager.serving import openai
from packager.serving.openai import BadAnswer, Server
from tests.support.doubles.speculating import SpeculatingServer

PROMPT = probe_request(Sample(prompt="one two three four five six seven"), 6)


def test_text_tokens_and_chunks_are_told_apart() -> None:
    with SpeculatingServer(step=3) as server:
        answer = Server(server.url).ask(PROMPT, "m")

    assert answer.text == "one two three four five six "
    assert (answer.tokens, answer.chunks) == (6, 3)  # 1 and 3 and 2
    assert answer.token_ids == (3, 3, 5, 4, 4, 3)
    assert 0 < answer.first_s <= answer.last_s
    assert not answer.error


def test_chunks_are_seen_when_they_come(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server sends each one only when the one before was taken."""
    taken = threading.Semaphore(1)
    text = openai._text

    def took(value: object) -> str:
        taken.release()
        return text(value)

    monkeypatch.setattr(openai, "_text", took)
    waited: list[bool] = []
    with SpeculatingServer(
        before_chunk=lambda request, token: waited.append(taken.acquire(timeout=60))
    ) as server:
        answer = Server(server.url).ask(PROMPT, "m")

    assert waited == [True] * 6
    assert answer.chunks == 6
    assert answer.first_s < answer.last_s


def test_everything_is_asked_for_at_temperature_0_with_a_count() -> None:
    with SpeculatingServer() as server:
        Server(server.url).ask(PROMPT, "m")

    (body,) = server.asked
    assert (body["model"], body["temperature"], body["max_tokens"]) == ("m", 0, 6)
    assert body["stream_options"] == {"include_usage": True}
    assert server.paths == ["/v1/completions"]


def test_a_conversation_is_asked_as_one() -> None:
    talk = Sample(
        messages=(Message(role="user", content="a b"), Message(role="assistant", content="c"))
    )
    with SpeculatingServer() as server:
        answer = Server(server.url).ask(probe_request(talk, 6), "m")

    assert server.paths == ["/v1/chat/completions"]
    assert server.asked[0]["messages"] == [{"role": "user", "content": "a b"}]
    assert (answer.text, answer.chunks) == ("a b ", 2)  # the chunk with the role is none


def test_a_server_that_refuses_token_ids_is_asked_without_from_then_on() -> None:
    with SpeculatingServer(knows_ids=False) as server:
        client = Server(server.url)
        answers = [client.ask(PROMPT, "m"), client.ask(PROMPT, "m")]

    assert [(answer.text, answer.token_ids) for answer in answers] == [(answers[0].text, ())] * 2
    assert answers[0].text.startswith("one")
    assert all("return_token_ids" not in body for body in server.asked)


def test_a_refusal_is_in_the_answer_and_not_the_connections_fault() -> None:
    with SpeculatingServer(refused="two") as server:
        client = Server(server.url)
        refused = client.ask(PROMPT, "m")
        client.ask(probe_request(Sample(prompt="one"), 6), "m")

    assert refused.error == '/v1/completions answered 400: {"error": "too long"}'
    assert not refused.lost
    assert server.asked[-1]["return_token_ids"]  # the refusal was not about it


def test_a_connection_is_used_again() -> None:
    """Else the time until the first text would be that of a connection, too."""
    with SpeculatingServer() as server:
        client = Server(server.url)
        for _ in range(3):
            client.ask(PROMPT, "m")

    assert len(server.clients) == 1


@pytest.mark.parametrize("chat", [False, True], ids=["prompt", "conversation"])
def test_tokens_of_the_prompt_are_told_beside_the_answer_or_in_it(chat: bool) -> None:
    talk = Sample(messages=(Message(role="user", content=PROMPT.body["prompt"]),))
    with SpeculatingServer(step=3) as server:
        answer = Server(server.url).ask(probe_request(talk, 6) if chat else PROMPT, "m")

    assert answer.prompt_token_ids == (1003, 1003, 1005, 1004, 1004, 1003, 1005)


def test_an_answer_without_a_count_is_a_failure() -> None:
    with SpeculatingServer(counts_usage=False) as server:
        assert "does not count its tokens" in Server(server.url).ask(PROMPT, "m").error


def test_json_without_a_bottom_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    deep = "[" * 100_000
    with SpeculatingServer() as server:
        monkeypatch.setattr(openai.json, "dumps", lambda _: deep, raising=True)
        client = Server(server.url)
        with pytest.raises(BadAnswer, match="list of models"):
            client.model()


def test_more_metrics_than_anybody_has_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openai, "_LONGEST_ANSWER", 100)
    with SpeculatingServer(step=3) as server, pytest.raises(BadAnswer, match="does not end"):
        Server(server.url).metrics()


def test_a_connection_that_breaks_is_told_without_its_address() -> None:
    with SpeculatingServer(breaks_after=0) as server:
        answer = Server(server.url).ask(PROMPT, "m")

    assert answer.lost
    assert answer.error == "the connection failed (ProtocolError)"


def test_user_and_password_reach_the_server_and_nothing_that_is_shown() -> None:
    with SpeculatingServer() as server:
        address = server.url.replace("http://", "http://ada:s3%3Acret@")
        client = Server(f"{address}/v1/?key=hidden")
        client.ask(PROMPT, client.model())

    assert client.shown == server.url
    assert server.headers[0]["authorization"] == "Basic YWRhOnMzOmNyZXQ="


def test_metrics_and_models_may_be_missing() -> None:
    with SpeculatingServer(told="none") as server:
        client = Server(server.url)
        assert client.metrics() == ""
        assert client.model() == "m"

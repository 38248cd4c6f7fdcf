"""Asking a server what it serves: what is taken from its answer, and what is a failure."""

from __future__ import annotations

import json

import pytest

from packager.cli.serving import openai
from packager.cli.serving.openai import BadAnswer, Server
from tests.support.doubles.speculating import SpeculatingServer


@pytest.mark.parametrize("answer", ["[" * 100_000, "{}", '{"data": {}}', "[]", "<html>"])
def test_what_is_no_list_of_models_names_none(answer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with SpeculatingServer() as server:
        monkeypatch.setattr(json, "dumps", lambda _: answer)

        assert Server(server.url).model() == ""


def test_more_metrics_than_anybody_has_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openai, "_LONGEST_ANSWER", 100)
    with SpeculatingServer(step=3) as server, pytest.raises(BadAnswer, match="does not end"):
        Server(server.url).metrics()


def test_user_and_password_reach_the_server_and_nothing_that_is_shown() -> None:
    with SpeculatingServer() as server:
        address = server.url.replace("http://", "http://ada:s3%3Acret@")
        client = Server(f"{address}/v1/?key=hidden")
        client.model()
        client.next_token_chances([1], "m")

    assert client.shown == server.url
    assert server.headers[0]["authorization"] == "Basic YWRhOnMzOmNyZXQ="


def test_metrics_and_models_may_be_missing() -> None:
    with SpeculatingServer(told="none") as server:
        client = Server(server.url)
        assert client.metrics() == ""
        assert client.model() == "m"

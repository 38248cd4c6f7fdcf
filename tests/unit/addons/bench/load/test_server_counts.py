"""Tokens as servers count them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from packager.addons.bench.load.server_counts import ServerCounter, count_by_tokenize
from packager.addons.bench.load.tokenizer import TokenizerFailed
from packager.addons.bench.load.values import LoadRequest
from tests.support.cases import as_type, cases, read_tables

CHAT = as_type(read_tables(__file__)["request"], LoadRequest)
TEXT = LoadRequest(endpoint="/v1/completions", body={"prompt": "one two", "max_tokens": 1})


def vllm(path: str, body: Mapping[str, Any]) -> tuple[int, bytes]:
    """Answer as vLLM: two tokens around a text, three around a chat."""
    if path != "/tokenize" or set(body) - {"model", "prompt", "messages", "add_special_tokens"}:
        return 400, b"{}"
    text = body["prompt"] if "prompt" in body else body["messages"][0]["content"]
    around = 3 if "messages" in body else 2 * body.get("add_special_tokens", True)
    tokens = list(range(len(text.split()) + around))
    return 200, json.dumps({"count": len(tokens), "max_model_len": 9, "tokens": tokens}).encode()


def tgi(path: str, body: Mapping[str, Any]) -> tuple[int, bytes]:
    """Answer as TGI: with the place of each token, and one that stands for no text."""
    if path == "/tokenize" and set(body) == {"inputs"}:
        words = body["inputs"].split()
    elif path == "/chat_tokenize" and "messages" in body:
        words = ["<user>", *body["messages"][0]["content"].split()]
    else:
        return 422, b"Failed to deserialize"
    found = [{"id": 1, "text": "<s>", "start": 0, "stop": 0}]
    found += [{"id": 5, "text": word, "start": 1, "stop": 4} for word in words]
    return 200, json.dumps(
        found if path == "/tokenize" else {"tokenize_response": found, "templated_text": ""}
    ).encode()


def other(answer: bytes, status: int = 200) -> Any:
    def post(path: str, body: Mapping[str, Any]) -> tuple[int, bytes]:
        return status, answer

    return post


@pytest.mark.parametrize("post", [vllm, tgi])
def test_a_text_is_counted_without_what_the_server_puts_around_it(post: Any) -> None:
    assert ServerCounter(post, "a model").count("one two three") == 3


@pytest.mark.parametrize(
    ("post", "request_", "tokens"),
    [(vllm, CHAT, 5), (vllm, TEXT, 4), (tgi, CHAT, 4), (tgi, TEXT, 3)],
)
def test_a_prompt_is_counted_with_it(post: Any, request_: LoadRequest, tokens: int) -> None:
    assert count_by_tokenize(post, request_, "a model") == tokens


@cases("unknown")
def test_a_server_that_does_not_tell_counts_nothing(status: int, answer: str) -> None:
    post = other(answer.encode(), status)

    assert count_by_tokenize(post, CHAT) is None
    with pytest.raises(TokenizerFailed, match="the server has no /tokenize"):
        ServerCounter(post).count("one")


def test_a_prompt_of_no_tokens_is_no_count() -> None:
    assert count_by_tokenize(other(b'{"tokens": []}'), CHAT) is None

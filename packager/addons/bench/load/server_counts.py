"""Tokens of texts and prompts as a server counts them, with its `/tokenize` where it has one.

vLLM and SGLang take `{"prompt"}` and answer `{"count", "tokens"}`, vLLM a chat's `{"messages"}`
with its template, too; TGI takes `{"inputs"}` and, for chats, has `/chat_tokenize`.  No tokens are
generated, and no prefix is cached that could speed up a later prompt.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from packager.addons.bench.load.tokenizer import TokenizerFailed
from packager.addons.bench.load.values import LoadRequest
from packager.core.documents import NotStrict, parse_json

Post = Callable[[str, Mapping[str, Any]], tuple[int, bytes]]  # path and body → status and answer

_MOST_VALUES = 10_000_000  # in the list of a long prompt's tokens
_LONGEST = 64 * 1024 * 1024
_ASKED = ("messages", "prompt", "tools")


class ServerCounter:
    """Counts tokens with a server, one request for each text."""

    def __init__(self, post: Post, model: str = "") -> None:
        self._post = post
        self._model = {"model": model} if model else {}

    def count(self, text: str) -> int:
        """Return how many tokens the text has; raise `TokenizerFailed`."""
        return len(self.encode(text))

    def encode(self, text: str) -> Sequence[int]:
        """Return the numbers of the tokens; raise `TokenizerFailed`."""
        asked = {"prompt": text, "add_special_tokens": False}
        for path, body in (
            ("/tokenize", {**asked, **self._model}),
            ("/tokenize", {"inputs": text}),
        ):
            status, answer = self._post(path, body)
            found = _tokens(answer) if status == 200 else None
            if found is not None:
                return found
        raise TokenizerFailed("the server has no /tokenize, or answers in another form")


def count_by_tokenize(post: Post, request: LoadRequest, model: str = "") -> int | None:
    """Return the tokens of a request's prompt, the template's included; None without a count."""
    asked = {name: request.body[name] for name in _ASKED if name in request.body}
    for path, body in _forms(asked, {"model": model} if model else {}):
        status, answer = post(path, body)
        found = _tokens(answer, added=True) if status == 200 else None
        if found:
            return len(found)
    return None


def _forms(
    asked: Mapping[str, Any], model: Mapping[str, str]
) -> Iterator[tuple[str, dict[str, Any]]]:
    yield "/tokenize", {**asked, **model}
    if "prompt" in asked:
        yield "/tokenize", {"inputs": asked["prompt"]}
    else:
        yield "/chat_tokenize", {**asked, **model}


def _tokens(answer: bytes, *, added: bool = False) -> list[int] | None:
    """Return the tokens of an answer, with those that stand for no text where `added` says so."""
    try:
        document = parse_json(answer, max_bytes=_LONGEST, max_values=_MOST_VALUES)
    except NotStrict:
        return None
    if isinstance(document, dict):  # vLLM, SGLang; TGI's chats
        document = document.get("tokens", document.get("tokenize_response"))
    if not isinstance(document, list):
        return None
    found = [one for one in map(_number, document) if one is not None]
    if len(found) < len(document):
        return None
    return [number for number, is_text in found if added or is_text]


def _number(token: object) -> tuple[int, bool] | None:
    """Return a token's number, and whether it stands for text: TGI tells where in the text."""
    if isinstance(token, dict):
        is_text = token.get("start") != token.get("stop")
        token = token.get("id")
    else:
        is_text = True
    if not isinstance(token, int) or isinstance(token, bool):
        return None
    return token, is_text

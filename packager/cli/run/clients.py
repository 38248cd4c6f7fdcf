"""Examples of requests to a running server: a shell command, and a program for OpenAI's client.

A served name may hold any character: the line is quoted for a shell, the program is written in
ASCII with Python's own literals.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Endpoint = Literal["/v1/chat/completions", "/v1/completions", "/invocations"]
CHAT: Endpoint = "/v1/chat/completions"
COMPLETIONS: Endpoint = "/v1/completions"  # for models without a chat template
INVOCATIONS: Endpoint = "/invocations"  # for servers without OpenAI's API

ENDPOINTS = (CHAT, COMPLETIONS, INVOCATIONS)
_TOKENS = 64
_QUESTION, _BEGINNING = "What can you do?", "Once upon a time"


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """A running server's address, endpoint and model name."""

    url: str  # `http://127.0.0.1:8080`
    endpoint: Endpoint
    model: str  # the name that clients send; "" where the server has none


def body_for(endpoint: Endpoint, model: str, *, tokens: int = _TOKENS) -> Mapping[str, Any]:
    """Return a request that the endpoint takes."""
    if endpoint == INVOCATIONS:
        return {"inputs": _BEGINNING, "parameters": {"max_new_tokens": tokens}}
    asked: dict[str, Any] = (
        {"messages": [{"role": "user", "content": _QUESTION}]}
        if endpoint == CHAT
        else {"prompt": _BEGINNING}
    )
    return {"model": model, **asked, "max_tokens": tokens}


def curl_line(address: Address) -> str:
    """Return a curl command that sends a request, to be pasted into a shell."""
    body = json.dumps(body_for(address.endpoint, address.model))
    words = (f"{address.url}{address.endpoint}", "-H", "Content-Type: application/json")
    return shlex.join(("curl", "-sS", *words, "-d", body))


def python_lines(address: Address) -> list[str]:
    """Return a program that uses OpenAI's client; [] for a server without OpenAI's API."""
    if address.endpoint == INVOCATIONS:
        return []
    chat = address.endpoint == CHAT
    method = "chat.completions" if chat else "completions"
    said = "message.content" if chat else "text"
    asked = (
        f'messages=[{{"role": "user", "content": {_literal(_QUESTION)}}}]'
        if chat
        else f"prompt={_literal(_BEGINNING)}"
    )
    return [
        "from openai import OpenAI",
        "",
        f'client = OpenAI(base_url={_literal(f"{address.url}/v1")}, api_key="none")',
        f"answer = client.{method}.create(",
        f"    model={_literal(address.model)},",
        f"    {asked},",
        f"    max_tokens={_TOKENS},",
        ")",
        f"print(answer.choices[0].{said})",
    ]


def _literal(text: str) -> str:
    """Return a Python literal, in double quotes where the text allows it."""
    return json.dumps(text) if text.isascii() and text.isprintable() else ascii(text)

"""Requests to a server and its responses, whatever the protocol."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from packager.core.samples import Sample


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeResponse:
    """One streamed answer. Seconds count from when the request was sent."""

    text: str = ""
    tokens: int = 0
    token_ids: tuple[int, ...] = ()  # empty if the server does not report it
    prompt_token_ids: tuple[int, ...] = ()  # the same
    chunks: int = 0  # that held text
    first_s: float  # until the first of them
    last_s: float
    error: str = ""  # reason of a missing answer

    @property
    def tpot_s(self) -> float | None:
        """Return the seconds for each token after the first."""
        if self.error or self.tokens < 2:
            return None
        return (self.last_s - self.first_s) / (self.tokens - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeRequest:
    """A request, as far as it does not depend on the server."""

    endpoint: str
    body: Mapping[str, Any]
    shown: str  # the prompt's end


def probe_request(sample: Sample, max_tokens: int) -> ProbeRequest:
    """Return a request for a sample.

    A conversation without its last answer, a prompt, or half a text.

    Everything at temperature 0, with the count of tokens at the end.
    """
    settings = {
        "max_tokens": max_tokens,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if sample.messages:
        turns = sample.messages[:-1] if sample.answered else sample.messages
        return ProbeRequest(
            endpoint="/v1/chat/completions",
            body={"messages": [turn.request() for turn in turns], **_prompted(sample), **settings},
            shown=prompt_end(turns[-1].content if turns else ""),
        )
    prompt = sample.prompt if sample.prompt is not None else _first_part(sample.text or "")
    return ProbeRequest(
        endpoint="/v1/completions", body={"prompt": prompt, **settings}, shown=prompt_end(prompt)
    )


def _prompted(sample: Sample) -> dict[str, Any]:
    """Return the fields that change the prompt of a conversation.

    Calls stay texts: a server without a parser of them refuses any other choice.
    """
    found: dict[str, Any] = {}
    if sample.tools:
        found |= {"tools": json.loads(sample.tools), "tool_choice": "none"}
    if sample.template:
        found["chat_template_kwargs"] = json.loads(sample.template)
    return found


def has_prompt(sample: Sample) -> bool:
    """Whether something is left of it to ask."""
    if sample.messages:
        return len(sample.messages) > int(sample.answered)
    return bool(sample.prompt if sample.prompt is not None else _first_part(sample.text or ""))


def _first_part(text: str) -> str:
    """Cut a text in the middle, at the end of a word where there is one."""
    half = text[: max(1, len(text) // 2)]
    space = half.rfind(" ")
    return half[:space] if space > 0 else half


def prompt_end(text: str, longest: int = 60) -> str:
    """Return the end of a prompt in one line, for messages."""
    line = " ".join(text.split())
    return line if len(line) <= longest else "…" + line[-longest + 1 :]

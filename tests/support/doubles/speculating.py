"""A server on loopback that speaks OpenAI's words and counts as engines do.

Its answer to a prompt is the prompt's own words again, one token each; a draft makes it stream
several of them in one chunk.

    with SpeculatingServer(step=3) as server:
        ...ask server.url...
    assert server.asked[0]["temperature"] == 0
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.support.doubles.http import Handler, Running, Server

DRAFTED = 4  # tokens that are proposed at a time


@dataclass
class Counters:
    """What an engine counts."""

    requests: int = 0
    tokens: int = 0
    drafts: int = 0
    accepted: int = 0


@dataclass
class SpeculatingServer(Running):
    """`step` tokens a chunk: 1 is a server without a draft. `told` says whose metrics it has."""

    step: int = 1
    told: str = "vllm"  # "tgi", "sglang", "none"
    answer: Callable[[str], list[str]] = lambda prompt: prompt.split()
    knows_ids: bool = True  # else `return_token_ids` is refused, as by a strict schema
    chances: Callable[[list[int]], object] | None = None  # after tokens; None: it tells none
    counts_usage: bool = True
    refused: str = ""  # prompts with this in them
    breaks_after: int = 10**9  # requests, after which it closes connections without an answer
    before_chunk: Callable[[int, int], object] = lambda request, token: None  # waits as it likes
    asked: list[dict[str, Any]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    clients: set[int] = field(default_factory=set)  # ports of connections that asked
    most_at_once: int = 0
    counters: Counters = field(default_factory=Counters)

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._now = 0
        self.servers = [Server(_Handler, self)]
        self.url, self.port = self.servers[0].url, self.servers[0].server_port

    def metrics(self) -> str:
        """Give its metrics as `told` spells them."""
        counters = self.counters
        if self.told == "vllm":
            return vllm_metrics(counters, drafts=self.step > 1)
        if self.told == "tgi":
            steps = counters.requests + counters.drafts
            return (
                "# TYPE tgi_request_skipped_tokens histogram\n"
                f"tgi_request_skipped_tokens_sum {counters.accepted}\n"
                f"tgi_request_skipped_tokens_count {steps}\n"
            )
        if self.told == "sglang":
            return f'sglang:spec_accept_length{{model_name="m"}} {self.step:.1f}\n'
        return ""

    def begin(self) -> int:
        """Count a request that came, and how many are there now."""
        with self._lock:
            self._now += 1
            self.most_at_once = max(self.most_at_once, self._now)
            self.counters.requests += 1
            return self.counters.requests

    def end(self) -> None:
        """Count it gone."""
        with self._lock:
            self._now -= 1

    def note(self, tokens: int, *, drafted: bool) -> None:
        """Count a step."""
        with self._lock:
            self.counters.tokens += tokens
            if drafted:
                self.counters.drafts += 1
                self.counters.accepted += tokens - 1


def prompt_ids(prompt: str) -> list[int]:
    """Return the tokens of a prompt: a thousand more than the length of each word."""
    return [1000 + len(word) for word in prompt.split()]


def vllm_metrics(counters: Counters, *, drafts: bool) -> str:
    """Spell counters as vLLM 0.32.0 does."""
    labels = 'engine="0",model_name="m"'
    lines = [f"vllm:generation_tokens_total{{{labels}}} {float(counters.tokens)}"]
    if drafts:
        counts = {
            "drafts": counters.drafts,
            "draft_tokens": counters.drafts * DRAFTED,
            "accepted_tokens": counters.accepted,
        }
        for name, value in counts.items():
            lines.append(f"vllm:spec_decode_num_{name}_total{{{labels}}} {float(value)}")
            lines.append(f"vllm:spec_decode_num_{name}_created{{{labels}}} 1.7e+09")
        for position in range(DRAFTED):
            taken = counters.accepted // 2 if position < 2 else 0
            lines.append(
                "vllm:spec_decode_num_accepted_tokens_per_pos_total"
                f'{{{labels},position="{position}"}} {float(taken)}'
            )
    return "\n".join(lines) + "\n"


class _Handler(Handler):
    server: Server

    def do_GET(self) -> None:
        server = self.server.double
        if self.path == "/v1/models":
            self._say(200, json.dumps({"data": [{"id": "m"}]}))
        elif self.path == "/metrics" and server.told != "none":
            self._say(200, server.metrics())
        elif self.path == "/ping":
            self._say(200, "")
        else:
            self._say(404, "")

    def do_POST(self) -> None:
        server, body = self.server.double, json.loads(self.body())
        if not server.knows_ids and "return_token_ids" in body:
            self._say(422, "unknown field `return_token_ids`")
            return
        number = server.begin()
        try:
            self._answer(body, number)
        finally:
            server.end()

    def _answer(self, body: dict[str, Any], number: int) -> None:
        server = self.server.double
        server.asked.append(body)
        server.paths.append(self.path)
        server.clients.add(self.client_address[1])
        server.headers.append({name.lower(): text for name, text in self.headers.items()})
        if "logprobs" in body:
            self._tell_chances(body)
            return
        if number > server.breaks_after:
            self.close_connection = True
            self.connection.close()
            return
        chat = "messages" in body
        prompt = body["messages"][-1]["content"] if chat else body["prompt"]
        if server.refused and server.refused in prompt:
            self._say(400, '{"error": "too long"}')
            return
        self.head(200, {"Content-Type": "text/event-stream", "Transfer-Encoding": "chunked"})
        words = server.answer(prompt)[: body["max_tokens"]]
        if chat:
            self._event({"choices": [{"delta": {"role": "assistant", "content": ""}}]})
        place = 0
        while place < len(words):
            taken = words[place : place + (server.step if place else 1)]
            server.note(len(taken), drafted=place > 0 and server.step > 1)
            server.before_chunk(number, place)
            text = "".join(f"{word} " for word in taken)
            choice: dict[str, Any] = {"delta": {"content": text}} if chat else {"text": text}
            event: dict[str, Any] = {"choices": [choice]}
            if body.get("return_token_ids"):
                choice["token_ids"] = [len(word) for word in taken]
                if not place:  # as vLLM 0.32.0 does: chats tell it beside the choices
                    (event if chat else choice)["prompt_token_ids"] = prompt_ids(prompt)
            self._event(event)
            place += len(taken)
        if server.counts_usage:
            self._event({"choices": [], "usage": {"completion_tokens": len(words)}})
        self.chunk(b"data: [DONE]\n\n")
        self.chunk(b"")

    def _tell_chances(self, body: dict[str, Any]) -> None:
        chances = self.server.double.chances
        told = chances(body["prompt"]) if chances else None
        if not isinstance(told, dict):
            self._say(400 if told is None else 200, json.dumps(told))
            return
        best = {f"token_id:{token}": value for token, value in told.items()}
        logprobs = {"top_logprobs": [best]}
        self._say(200, json.dumps({"choices": [{"text": "", "logprobs": logprobs}]}))

    def _event(self, event: dict[str, Any]) -> None:
        self.chunk(b"data: " + json.dumps(event).encode() + b"\n\n")

    def _say(self, status: int, text: str) -> None:
        self.say(status, body=text.encode())

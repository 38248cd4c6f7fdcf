"""Sends one prompt to an endpoint's container, as clients do."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp

from packager.addons.server.endpoints.deployments import ENDPOINT
from packager.addons.server.endpoints.traffic import TrafficServer, pick_variant
from packager.addons.server.services import ServeServices
from packager.core.documents import NotStrict, parse_object
from packager.core.errors import Unavailable

LIMIT_S = 60.0
_MOST_BYTES = 4 * 1024 * 1024
_MOST_SHOWN = 2000


@dataclass(frozen=True, slots=True)
class PromptAnswer:
    """The container's answer."""

    text: str
    words: str  # how long it took, and how many tokens it has


async def ask(services: ServeServices, endpoint: str, prompt: str, tokens: int) -> PromptAnswer:
    """Return the endpoint's answer to a prompt; raises `Unavailable` where there is none.

    A model with a chat template gets a message; one without gets the prompt to go on from.
    """
    server = _server_of(services, endpoint)
    chat = {"messages": [{"role": "user", "content": prompt}], "max_tokens": tokens}
    plain = {"prompt": prompt, "max_tokens": tokens}
    generated = {"inputs": prompt, "parameters": {"max_new_tokens": tokens}}
    message = ""
    with server.leased():
        for body in (chat, plain, generated):
            began = time.monotonic()
            status, data = await _post(services, server, body)
            if status == 200:
                return _answer(data, time.monotonic() - began)
            message = message or data.decode("utf-8", "replace")[:_MOST_SHOWN]
            if status >= 500:
                break
    raise Unavailable(
        f"the endpoint answered with an error: {message}",
        hint="its log is in `docker logs` of its container",
    )


def _server_of(services: ServeServices, endpoint: str) -> TrafficServer:
    pools = services.endpoints.pools(ENDPOINT, endpoint)
    variant = pick_variant(pools) if pools else None
    server = pools[variant].pick() if variant is not None else None
    if server is None:
        raise Unavailable(
            "the endpoint has no container that answers now",
            hint="wait until it is InService",
        )
    return server


async def _post(
    services: ServeServices, server: TrafficServer, body: Mapping[str, Any]
) -> tuple[int, bytes]:
    limit = aiohttp.ClientTimeout(total=LIMIT_S)
    try:
        async with services.endpoints.http().post(
            f"{server.url}/invocations", json=body, timeout=limit, allow_redirects=False
        ) as answer:
            data = await answer.content.read(_MOST_BYTES)
            while len(data) < _MOST_BYTES and not answer.content.at_eof():
                data += await answer.content.read(_MOST_BYTES - len(data))
            return answer.status, data
    except TimeoutError:
        raise Unavailable(
            f"the endpoint did not answer within {LIMIT_S:g} s",
            hint="ask for fewer tokens",
        ) from None
    except (aiohttp.ClientError, OSError) as error:
        raise Unavailable(
            f"the endpoint's connection was lost: {error}",
            hint="its log is in `docker logs` of its container",
        ) from None


def _answer(data: bytes, seconds: float) -> PromptAnswer:
    try:
        document = parse_object(data, max_bytes=_MOST_BYTES)
    except NotStrict:
        return PromptAnswer(data.decode("utf-8", "replace"), f"{seconds:.2f} s")
    usage = document.get("usage")
    count = usage.get("completion_tokens") if isinstance(usage, Mapping) else None
    words = f"{seconds:.2f} s"
    if isinstance(count, int) and not isinstance(count, bool) and seconds > 0:
        words = f"{count} tokens in {seconds:.2f} s, {count / seconds:.1f} tokens/s"
    return PromptAnswer(_text_of(document) or json.dumps(document, ensure_ascii=False), words)


def _text_of(document: Mapping[str, Any]) -> str:
    choices = document.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else document
    if not isinstance(first, Mapping):
        return ""
    message = first.get("message")
    found = message.get("content") if isinstance(message, Mapping) else None
    found = found or first.get("text") or first.get("generated_text")
    return found if isinstance(found, str) else ""

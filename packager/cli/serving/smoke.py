"""Smoke test of an image: start it, wait for /ping, send requests, stop it.

The first request has the shortest prompt, and asks for one token. Engines choose other kernels for
a few tokens than for many, and a kernel that fails on a fresh process may work after another kernel
has run.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import urllib3

from packager.cli.serving.adapters import AdapterProof, prove_adapters
from packager.cli.serving.containers import log_of, running, wait_for_ping
from packager.cli.serving.openai import listed_adapters
from packager.cli.serving.pooling_reference import (
    PoolingReference,
    check_reference,
    precision_of,
)
from packager.cli.serving.smoke_pooling import ask_pooling, pooling_path
from packager.core.documents import MAX_BYTES, NotStrict, field, parse_json, parse_object, shorten
from packager.core.errors import SmokeFailed
from packager.core.pictures import with_pictures
from packager.core.remote.pools import timely

SEEN = "What is in the picture?"
PROMPT = "What does loads in the json module do?"  # the default prompt
_REQUEST_TIMEOUT_S = 300.0
_SAID = ("content", "reasoning", "reasoning_content")
_SHORT = "a"  # one token, or two where the tokenizer adds its own first token


@dataclass(frozen=True, slots=True, kw_only=True)
class SmokeAnswer:
    """One answered request."""

    endpoint: str
    text: str
    tokens: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SmokeResult:
    """Result of starting a container and sending requests. Times are wall-clock seconds."""

    image: str
    model: str
    seconds_to_ping: float
    answers: tuple[SmokeAnswer, ...]
    adapters: tuple[AdapterProof, ...] = ()  # that answered otherwise than the base


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointAnswer:
    """Answer of a server that was running already. Times are wall-clock seconds."""

    model: str  # as in the server's list; "" where it has none
    text: str
    seconds: float


def smoke(
    engine: Any,
    image: str,
    *,
    prompt: str,
    max_tokens: int,
    deadline_s: float,
    on_progress: Callable[[str], None],
    env: Mapping[str, str] | None = None,
    adapters: tuple[str, ...] = (),
    images: str = "",
    reference: PoolingReference | None = None,
) -> SmokeResult:
    """Run `image`, ask it for one token, then in OpenAI's and in LMI's words; stop it.

    A server of vectors or scores is asked for these, on its own path and on /invocations.
    `reference` is what the model itself gives; answers may differ by their element type alone.
    `images`, such as `1x224x224`, are pictures of a question of their own.
    Every adapter that the server lists, and each of `adapters`, must answer otherwise than the
    base.  Raises `SmokeFailed` with the end of the container's log.
    """
    started = time.monotonic()
    with running(engine, image, env or {}, on_progress) as (container, url):
        http = timely(urllib3.PoolManager(retries=False))
        try:
            wait_for_ping(http, container, url, deadline_s, on_progress)
            ready = time.monotonic() - started
            on_progress(f"/ping answers after {ready:.1f} s")
            model = _model_name(http, url)
            precision = precision_of(container.labels) if reference else ""
            answers = _ask_pooling(http, url, model, prompt, reference, precision)
            if not answers:
                _ask_invocations(http, url, _SHORT, 1)
                answers = (
                    _ask_chat(http, url, model, prompt, max_tokens),
                    _ask_invocations(http, url, prompt, max_tokens),
                    *([_ask_chat(http, url, model, SEEN, max_tokens, images)] if images else ()),
                )
            proofs = _prove_adapters(http, url, model, adapters)
        except SmokeFailed as error:
            raise SmokeFailed(error.message, hint=error.hint, log=log_of(container)) from error
        except (urllib3.exceptions.HTTPError, NotStrict) as error:
            raise SmokeFailed(
                f"the container's answer is unusable: {type(error).__name__}: {error}",
                hint="its log is above",
                log=log_of(container),
            ) from error
    return SmokeResult(
        image=image, model=model, seconds_to_ping=ready, answers=answers, adapters=proofs
    )


def _ask_pooling(
    http: urllib3.PoolManager,
    url: str,
    model: str,
    prompt: str,
    reference: PoolingReference | None,
    precision: str,
) -> tuple[SmokeAnswer, ...]:
    """Ask a server of vectors or scores; () for others, which describe their chats."""
    status, body = _send(http, "GET", f"{url}/openapi.json", timeout_s=30.0)
    try:
        path = pooling_path(parse_json(body)) if status == 200 else ""
    except NotStrict:
        return ()
    if not path and reference is not None:
        what = "a reference is of vectors or scores, and the server writes text"
        raise SmokeFailed(what, hint="leave --reference out")
    if not path:
        return ()

    def ask(where: str, document: Mapping[str, Any]) -> tuple[Any, float]:
        return _post(http, f"{url}{where}", document)

    found = [*ask_pooling(ask, path, model, prompt)]
    if reference is not None:
        found.append(check_reference(ask, path, model, reference, precision))
    return tuple(
        SmokeAnswer(endpoint=where, text=words, tokens=tokens, seconds=seconds)
        for where, words, tokens, seconds in found
    )


def _prove_adapters(
    http: urllib3.PoolManager, url: str, base: str, wanted: tuple[str, ...]
) -> tuple[AdapterProof, ...]:
    """Prove the adapters that are listed or named; raise `SmokeFailed` for one that is neither."""
    status, body = _send(http, "GET", f"{url}/v1/models", timeout_s=30.0)
    listed = field(parse_object(body), "data", list) if status == 200 else []
    names = tuple(dict.fromkeys((*listed_adapters(listed), *wanted)))

    def ask(path: str, document: Mapping[str, Any], headers: Mapping[str, str]) -> Any:
        return _post(http, f"{url}{path}", document, headers)[0]

    return prove_adapters(ask, base, names) if names else ()


def ask_endpoint(url: str, *, prompt: str, max_tokens: int) -> EndpointAnswer:
    """Send requests to a running server through /invocations; return its answer.

    It is asked for one token after a short prompt first, as `smoke` does.  Bodies are those of
    OpenAI's chats, which every family answers there.  Raises `SmokeFailed`.
    """
    http = timely(urllib3.PoolManager(retries=False))
    try:
        model = _model_name(http, url)
        ask = partial(_post, http, f"{url}/invocations")
        return _ask_as_chat(ask, model, prompt, max_tokens)
    except (urllib3.exceptions.HTTPError, NotStrict) as error:
        raise SmokeFailed(
            f"the answer of {url} is unusable: {type(error).__name__}: {error}",
            hint="see the log of its server",
        ) from error


def ask_through(
    send: Callable[[bytes], bytes], *, where: str, model: str, prompt: str, max_tokens: int
) -> EndpointAnswer:
    """Send the requests of `ask_endpoint` by the function `send`; `where` is for messages.

    Raises `SmokeFailed` for an answer that is none, and what `send` raises.
    """

    def ask(body: dict[str, Any]) -> tuple[Any, float]:
        started = time.monotonic()
        answer = send(json.dumps(body).encode())
        return parse_json(answer), time.monotonic() - started

    try:
        return _ask_as_chat(ask, model, prompt, max_tokens)
    except NotStrict as error:
        raise SmokeFailed(
            f"the answer of {where} is unusable: {error}", hint="see the log of its server"
        ) from error


def _ask_as_chat(
    ask: Callable[[dict[str, Any]], tuple[Any, float]], model: str, prompt: str, max_tokens: int
) -> EndpointAnswer:
    """Ask for one token, then for an answer; return the answer."""
    _ask_chat_once(ask, model, _SHORT, 1)
    return _ask_chat_once(ask, model, prompt, max_tokens)


def _ask_chat_once(
    ask: Callable[[dict[str, Any]], tuple[Any, float]], model: str, prompt: str, max_tokens: int
) -> EndpointAnswer:
    body: dict[str, Any] = {
        "messages": [{"role": "user", "content": prompt}],
        "max_tokens": max_tokens,
        "temperature": 0,
        **({"model": model} if model else {}),
    }
    document, seconds = ask(body)
    choices = field(document, "choices", list)
    message = field(choices[0] if choices else None, "message", dict, "choices[0]")
    said = next((message[one] for one in _SAID if message.get(one) is not None), "")
    return EndpointAnswer(model=model, text=str(said), seconds=seconds)


def _model_name(http: urllib3.PoolManager, url: str) -> str:
    """Return the first served name; containers without the OpenAI list have none."""
    status, body = _send(http, "GET", f"{url}/v1/models", timeout_s=30.0)
    if status != 200:
        return ""
    listed = field(parse_object(body), "data", list)
    return field(listed[0], "id", str) if listed else ""


def _ask_chat(
    http: urllib3.PoolManager, url: str, model: str, prompt: str, max_tokens: int, images: str = ""
) -> SmokeAnswer:
    body: dict[str, Any] = {
        "model": model,
        "messages": [{"role": "user", "content": prompt}],
        "max_tokens": max_tokens,
        "temperature": 0,
    }
    body = with_pictures(body, images, "smoke") if images else body
    document, seconds = _post(http, f"{url}/v1/chat/completions", body)
    choices = field(document, "choices", list)
    message = field(choices[0] if choices else None, "message", dict, "choices[0]")
    # A model that reasons may reach the limit before its answer begins.
    name = next((name for name in _SAID if message.get(name) is not None), "")
    return SmokeAnswer(
        endpoint="/v1/chat/completions" + (f" with {images}" if images else ""),
        text=field(message, name, str, "message") if name else "",
        tokens=field(field(document, "usage", dict), "completion_tokens", int, "usage"),
        seconds=seconds,
    )


def _ask_invocations(
    http: urllib3.PoolManager, url: str, prompt: str, max_tokens: int
) -> SmokeAnswer:
    body = {
        "inputs": prompt,
        "parameters": {"max_new_tokens": max_tokens, "do_sample": False, "details": True},
    }
    document, seconds = _post(http, f"{url}/invocations", body)
    first = document[0] if isinstance(document, list) and document else document
    text, details = field(first, "generated_text", str), first.get("details")
    counted = details.get("generated_tokens") if isinstance(details, dict) else None
    return SmokeAnswer(
        endpoint="/invocations",
        text=text,
        tokens=0 if counted is None else field(details, "generated_tokens", int, "details"),
        seconds=seconds,
    )


def _post(
    http: urllib3.PoolManager,
    url: str,
    body: Mapping[str, Any],
    headers: Mapping[str, str] | None = None,
) -> tuple[Any, float]:
    started = time.monotonic()
    status, answer = _send(
        http, "POST", url, json=body, headers=headers, timeout_s=_REQUEST_TIMEOUT_S
    )
    if status != 200:
        raise SmokeFailed(
            f"{url} answered {status}: {shorten(answer[:300].decode(errors='replace'), 300)}",
            hint="its log is above",
        )
    return parse_json(answer), time.monotonic() - started


def _send(
    http: urllib3.PoolManager,
    method: str,
    url: str,
    *,
    timeout_s: float,
    json: object = None,
    headers: Mapping[str, str] | None = None,
) -> tuple[int, bytes]:
    """Send a request; return status and body, whose size is limited."""
    answer = http.request(
        method, url, json=json, headers=headers or None, timeout=timeout_s, preload_content=False
    )
    try:
        data = answer.read(MAX_BYTES + 1, decode_content=False)
        return answer.status, data
    finally:
        answer.close()

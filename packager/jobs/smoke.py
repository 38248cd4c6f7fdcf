"""Smoke test of an image: start it, wait for /ping, ask it, stop it.

The first question is as short as one can be, and for one token.  Engines choose other kernels
for a few tokens than for many, and a kernel that another one has prepared the process for does
not show that it fails alone.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import urllib3

from packager.adapters.serving.containers import log_of, running, wait_for_ping
from packager.errors import SmokeFailed

_REQUEST_TIMEOUT_S = 300.0
_SHORT = "a"  # one token, or two where the model begins with one of its own


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One answered request."""

    endpoint: str
    text: str
    tokens: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SmokeResult:
    """What a container did. Times are wall-clock seconds."""

    image: str
    model: str
    seconds_to_ping: float
    answers: tuple[Answer, ...]


def smoke(
    engine: Any,
    image: str,
    *,
    prompt: str,
    max_tokens: int,
    deadline_s: float,
    on_progress: Callable[[str], None],
    env: Mapping[str, str] | None = None,
) -> SmokeResult:
    """Run `image`, ask it for one token, then in OpenAI's and in LMI's words; stop it.

    Raises `SmokeFailed` with the end of the container's log.
    """
    started = time.monotonic()
    with running(engine, image, env or {}, on_progress) as (container, url):
        http = urllib3.PoolManager(retries=False)
        try:
            wait_for_ping(http, container, url, deadline_s, on_progress)
            ready = time.monotonic() - started
            on_progress(f"/ping answers after {ready:.1f} s")
            model = _model_name(http, url)
            _ask_invocations(http, url, _SHORT, 1)
            answers = (
                _ask_chat(http, url, model, prompt, max_tokens),
                _ask_invocations(http, url, prompt, max_tokens),
            )
        except SmokeFailed as error:
            raise SmokeFailed(error.message, hint=error.hint, log=log_of(container)) from error
        except (
            urllib3.exceptions.HTTPError,
            ValueError,
            LookupError,
            TypeError,
            AttributeError,
        ) as error:
            raise SmokeFailed(
                f"the container's answer is unusable: {type(error).__name__}: {error}",
                hint="its log is above",
                log=log_of(container),
            ) from error
    return SmokeResult(image=image, model=model, seconds_to_ping=ready, answers=answers)


def _model_name(http: urllib3.PoolManager, url: str) -> str:
    """The first served name; containers without the OpenAI list have none."""
    answer = http.request("GET", f"{url}/v1/models", timeout=30.0)
    return str(answer.json()["data"][0]["id"]) if answer.status == 200 else ""


def _ask_chat(
    http: urllib3.PoolManager, url: str, model: str, prompt: str, max_tokens: int
) -> Answer:
    body = {
        "model": model,
        "messages": [{"role": "user", "content": prompt}],
        "max_tokens": max_tokens,
        "temperature": 0,
    }
    document, seconds = _post(http, f"{url}/v1/chat/completions", body)
    return Answer(
        endpoint="/v1/chat/completions",
        text=str(document["choices"][0]["message"]["content"] or ""),
        tokens=int(document["usage"]["completion_tokens"]),
        seconds=seconds,
    )


def _ask_invocations(http: urllib3.PoolManager, url: str, prompt: str, max_tokens: int) -> Answer:
    body = {
        "inputs": prompt,
        "parameters": {"max_new_tokens": max_tokens, "do_sample": False, "details": True},
    }
    document, seconds = _post(http, f"{url}/invocations", body)
    first = document[0] if isinstance(document, list) else document
    return Answer(
        endpoint="/invocations",
        text=str(first["generated_text"]),
        tokens=int((first.get("details") or {}).get("generated_tokens", 0)),
        seconds=seconds,
    )


def _post(http: urllib3.PoolManager, url: str, body: dict[str, Any]) -> tuple[Any, float]:
    started = time.monotonic()
    answer = http.request("POST", url, json=body, timeout=_REQUEST_TIMEOUT_S)
    if answer.status != 200:
        raise SmokeFailed(
            f"{url} answered {answer.status}: {answer.data[:300].decode(errors='replace')}",
            hint="its log is above",
        )
    return json.loads(answer.data), time.monotonic() - started

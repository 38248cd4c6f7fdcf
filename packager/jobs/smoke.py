"""Smoke test of an image: start it, wait for /ping, ask it, stop it.

The port is published on loopback only, where the engine has a bridge; an
engine without one runs the container on the host's network.  Whatever
happens, the container is removed.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import urllib3

from packager.errors import NotFound, SmokeFailed, Unavailable, UsageError

PORT = 8080
_LOG_LINES = 40
_LOG_BYTES = 16 * 1024  # a line has no limit
_POLL_S = 0.5
_REQUEST_TIMEOUT_S = 300.0


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
    """Run `image`, ask it in OpenAI's and in LMI's words, stop it.

    Raises `SmokeFailed` with the end of the container's log.
    """
    started = time.monotonic()
    with _running(engine, image, env or {}, on_progress) as (container, url):
        http = urllib3.PoolManager(retries=False)
        try:
            _wait_for_ping(http, container, url, deadline_s, on_progress)
            ready = time.monotonic() - started
            on_progress(f"/ping answers after {ready:.1f} s")
            model = _model_name(http, url)
            answers = (
                _ask_chat(http, url, model, prompt, max_tokens),
                _ask_invocations(http, url, prompt, max_tokens),
            )
        except SmokeFailed as error:
            raise SmokeFailed(error.message, hint=error.hint, log=_log(container)) from error
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
                log=_log(container),
            ) from error
    return SmokeResult(image=image, model=model, seconds_to_ping=ready, answers=answers)


@contextmanager
def _running(
    engine: Any, image: str, env: Mapping[str, str], on_progress: Callable[[str], None]
) -> Iterator[tuple[Any, str]]:
    from docker.errors import APIError, DockerException, ImageNotFound, NullResource

    try:
        engine.images.get(image)
    except (ImageNotFound, NullResource) as error:
        raise NotFound(
            f"the engine has no image {image!r}",
            hint=f"build it with --output docker:{image}, or pull it first",
        ) from error
    except APIError as error:
        raise UsageError(
            f"the engine does not take {image!r}: {error.explanation or error}",
            hint="name an image as `docker images` shows it",
        ) from error
    bridged = any(network["Driver"] == "bridge" for network in engine.api.networks())
    ports = {"ports": {f"{PORT}/tcp": ("127.0.0.1", None)}} if bridged else {"network_mode": "host"}
    name = f"packager-smoke-{secrets.token_hex(6)}"  # known before an interrupt can hide the id
    try:
        try:
            container = engine.containers.create(
                image, name=name, environment=dict(env), shm_size="1g", **ports
            )
            on_progress(f"starting {container.short_id} from {image}")
            container.start()
        except APIError as error:
            raise SmokeFailed(
                f"the engine cannot start {image!r}: {error.explanation or error}",
                hint="an image built on scratch has nothing to run; give a serving base",
            ) from error
        container.reload()
        bound = (container.ports or {}).get(f"{PORT}/tcp") if bridged else None
        yield container, f"http://127.0.0.1:{bound[0]['HostPort'] if bound else PORT}"
    except APIError as error:
        raise SmokeFailed(f"the engine lost the container: {error.explanation or error}") from error
    except (DockerException, OSError) as error:
        raise Unavailable(
            "the connection to the Docker Engine was lost",
            hint="see whether it still runs: `docker info`",
        ) from error
    finally:
        with suppress(DockerException, OSError):
            engine.api.remove_container(name, force=True, v=True)


def _wait_for_ping(
    http: urllib3.PoolManager,
    container: Any,
    url: str,
    deadline_s: float,
    on_progress: Callable[[str], None],
) -> None:
    """Poll until /ping says 200. An ended container fails at once, not at the deadline."""
    started = time.monotonic()
    said = started
    while True:
        with suppress(urllib3.exceptions.HTTPError):
            if http.request("GET", f"{url}/ping", timeout=5.0).status == 200:
                return
        container.reload()
        if container.status not in ("running", "created"):
            code = container.attrs["State"]["ExitCode"]
            raise SmokeFailed(
                f"the container ended with status {code} before it answered",
                hint="its log is above",
            )
        now = time.monotonic()
        if now - started > deadline_s:
            raise SmokeFailed(
                f"/ping did not answer within {deadline_s:.0f} s",
                hint="give it longer with --timeout, or read its log above",
            )
        if now - said > 10:
            said = now
            on_progress(f"waiting for /ping, {now - started:.0f} s")
        time.sleep(_POLL_S)


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


def _log(container: Any) -> str:
    with suppress(Exception):
        log: bytes = container.logs(tail=_LOG_LINES)
        return log[-_LOG_BYTES:].decode(errors="replace")
    return ""

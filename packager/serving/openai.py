"""Asks a server in OpenAI's words, and takes its answer as it comes.

Text comes in chunks; with speculation a chunk may hold several tokens, so tokens
are what the server counts (`usage`), never chunks.  `return_token_ids` is vLLM's
own; other servers leave it alone, or refuse it, and are asked without.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import urllib3

from packager.core.documents import NotStrict, field, parse_json, parse_object
from packager.core.probes import ProbeRequest, ProbeResponse
from packager.serving.address import parse_address

_ANSWER_S = 600.0  # without any byte
_CONNECT_S = 10.0
_LONGEST_ANSWER = 64 * 1024 * 1024  # bytes; more cannot be the answer of some hundred tokens
_MOST_TOKENS = 2**31  # of an answer
_BEST = 5  # as many as OpenAI's schema lets be asked for
_TOKEN = "token_id:"  # how vLLM names a token by its number


class BadAnswer(Exception):
    """The server refused, or said something that cannot be used."""


class Server:
    """A running server, asked from several threads."""

    def __init__(
        self, url: str, *, connections: int = 8, headers: Mapping[str, str] | None = None
    ) -> None:
        address = parse_address(url)
        self.shown = self._base = address.base
        self._headers = {**(headers or {}), **address.headers}
        self._http = urllib3.PoolManager(maxsize=connections, retries=False, block=False)
        self._extras: dict[str, Any] = {"return_token_ids": True}

    def model(self) -> str:
        """Return the first model's name; "" for servers without the list."""
        status, body = self._get("/v1/models", 30.0)
        if status != 200:
            return ""
        try:
            listed = field(parse_object(body), "data", list)
            return field(listed[0], "id", str) if listed else ""
        except NotStrict as error:
            raise BadAnswer("its list of models cannot be read") from error

    def metrics(self) -> str:
        """Return the text of the server's metrics; "" where it has none."""
        status, body = self._get("/metrics", 30.0)
        return body.decode("utf-8", "replace") if status == 200 else ""

    def ask(self, question: ProbeRequest, model: str) -> ProbeResponse:
        """Send a request and return the response; a failure is stored in it."""
        started = time.monotonic()
        try:
            return self._answer(question, model)
        except (BadAnswer, urllib3.exceptions.HTTPError, OSError) as error:
            seconds = time.monotonic() - started
            reason = str(error) if isinstance(error, BadAnswer) else _reason(error)
            return ProbeResponse(
                error=reason, lost=not isinstance(error, BadAnswer), first_s=seconds, last_s=seconds
            )

    def post(self, path: str, body: Mapping[str, Any]) -> tuple[int, bytes]:
        """Return the status and the whole answer to a body; raises `BadAnswer` without an end."""
        response = self._post(path, body)
        try:
            return response.status, b"".join(_pieces(response))
        finally:
            response.close()

    def count_prompt(self, endpoint: str, body: Mapping[str, Any], model: str) -> int:
        """Return the tokens of a prompt as the server counts them, with an answer of one token.

        Raises `BadAnswer` where it does not answer or count.
        """
        asked = {name: value for name, value in body.items() if name != "stream_options"}
        asked |= {"max_tokens": 1, "stream": False, **({"model": model} if model else {})}
        status, data = self.post(endpoint, asked)
        if status != 200:
            said = data[:300].decode("utf-8", "replace")
            raise BadAnswer(f"{endpoint} answered {status}: {said}")
        try:
            usage = field(parse_object(data), "usage", dict)
            return _count(field(usage, "prompt_tokens", int, "usage"))
        except (NotStrict, ValueError) as error:
            raise BadAnswer("it does not count the tokens of a prompt") from error

    def next_token_chances(self, tokens: Sequence[int], model: str) -> dict[int, float]:
        """Return the log-probabilities of the best tokens after `tokens`, by token.

        Empty where the server refuses the question or answers it in another form than vLLM's.
        """
        body = {
            "prompt": list(tokens),
            "max_tokens": 1,
            "temperature": 0,
            "logprobs": _BEST,
            "return_tokens_as_token_ids": True,
            **({"model": model} if model else {}),
        }
        try:
            response = self._post("/v1/completions", body)
            try:
                if response.status != 200:
                    return {}
                return _chances(b"".join(_pieces(response)))
            finally:
                response.close()
        except (BadAnswer, urllib3.exceptions.HTTPError, OSError):
            return {}

    def _answer(self, question: ProbeRequest, model: str) -> ProbeResponse:
        body = {**question.body, **({"model": model} if model else {})}
        started = time.monotonic()
        response = self._post(question.endpoint, {**body, **self._extras})
        if response.status in (400, 422) and self._extras:
            response.drain_conn()
            response = self._post(question.endpoint, body)
            if response.status == 200:
                self._extras = {}  # it is this that it does not take
        try:
            if response.status != 200:
                said = response.read(300).decode("utf-8", "replace")
                raise BadAnswer(f"{question.endpoint} answered {response.status}: {said}")
            return _collected(_events(response), started, time.monotonic)
        except BaseException:
            response.close()  # an answer read to its end gives the connection back
            raise

    def _post(self, endpoint: str, body: Mapping[str, Any]) -> urllib3.BaseHTTPResponse:
        return self._http.request(
            "POST",
            self._base + endpoint,
            json=body,
            headers={**self._headers, "Content-Type": "application/json"},
            timeout=urllib3.Timeout(connect=_CONNECT_S, read=_ANSWER_S),
            preload_content=False,
        )

    def _get(self, path: str, timeout_s: float) -> tuple[int, bytes]:
        response = self._http.request(
            "GET",
            self._base + path,
            headers=self._headers,
            timeout=timeout_s,
            preload_content=False,
        )
        try:
            return response.status, b"".join(_pieces(response))
        except BaseException:
            response.close()
            raise


def _pieces(response: urllib3.BaseHTTPResponse) -> Iterator[bytes]:
    """Yield the body in pieces; raises where it exceeds the limit."""
    size = 0
    for piece in response.stream():
        size += len(piece)
        if size > _LONGEST_ANSWER:
            raise BadAnswer("its answer does not end")
        yield piece


def _lines(response: urllib3.BaseHTTPResponse) -> Iterator[bytes]:
    """Yield each line when it is there. One that does not end costs no time for each piece."""
    begun: list[bytes] = []
    for piece in _pieces(response):
        first, *others = piece.split(b"\n")
        begun.append(first)
        if others:
            yield b"".join(begun)
            yield from others[:-1]
            begun = [others[-1]]
    yield b"".join(begun)


def _events(response: urllib3.BaseHTTPResponse) -> Iterator[dict[str, Any]]:
    for line in _lines(response):
        name, _, data = line.strip().partition(b":")
        data = data.strip()
        if name != b"data" or data == b"[DONE]":
            continue
        try:
            event = parse_json(data)
        except NotStrict as error:
            raise BadAnswer("a chunk of its answer is not JSON") from error
        if not isinstance(event, dict):
            raise BadAnswer("a chunk of its answer is not an object")
        if event.get("error"):
            raise BadAnswer(f"it broke off: {json.dumps(event['error'])[:300]}")
        yield event


def _collected(
    events: Iterator[dict[str, Any]], started: float, clock: Callable[[], float]
) -> ProbeResponse:
    texts: list[str] = []
    ids: list[int] = []
    prompt_ids: tuple[int, ...] = ()
    tokens: int | None = None
    first = last = 0.0
    try:
        for event in events:
            if event.get("usage"):
                tokens = _count(event["usage"]["completion_tokens"])
            prompt_ids = prompt_ids or _ids(event.get("prompt_token_ids"))  # of a conversation
            for choice in event.get("choices") or ():
                prompt_ids = prompt_ids or _ids(choice.get("prompt_token_ids"))
                ids += map(_count, choice.get("token_ids") or ())
                text = choice.get("text") or _said(choice.get("delta") or {})
                if text:
                    texts.append(_text(text))
                    last = clock() - started
                    first = first or last
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        raise BadAnswer("a chunk of its answer has another form than OpenAI's") from error
    end = clock() - started
    if tokens is None:
        raise BadAnswer("it does not count its tokens: the answer has no usage")
    return ProbeResponse(
        text="".join(texts),
        tokens=tokens,
        token_ids=tuple(ids),
        prompt_token_ids=prompt_ids,
        chunks=len(texts),
        first_s=first or end,
        last_s=last or end,
    )


def _chances(data: bytes) -> dict[int, float]:
    """Read the log-probabilities of an answer of one token; nothing from one of another form."""
    try:
        choices = field(parse_object(data), "choices", list)
        best = choices[0]["logprobs"]["top_logprobs"][0]
        told = {int(name.removeprefix(_TOKEN)): float(value) for name, value in best.items()}
    except (NotStrict, LookupError, TypeError, AttributeError, ValueError, OverflowError):
        return {}
    return told if all(value <= 0 for value in told.values()) else {}


def _ids(value: object) -> tuple[int, ...]:
    """Return the numbers of tokens; none where they are not told."""
    return tuple(map(_count, value)) if isinstance(value, list) else ()


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("text is a string")
    return value


def _count(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < _MOST_TOKENS:
        raise ValueError("tokens are counted")
    return value


def _said(delta: Mapping[str, Any]) -> str:
    """Return the text of a chunk, or the reasoning that a model reports separately."""
    return delta.get("content") or delta.get("reasoning_content") or delta.get("reasoning") or ""


def _reason(error: Exception) -> str:
    """Return the reason of a connection error, without its address."""
    if isinstance(error, urllib3.exceptions.TimeoutError):
        return "it did not answer in time"
    return f"the connection failed ({type(error).__name__})"

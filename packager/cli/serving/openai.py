"""Requests a server's model list and the probabilities of its next tokens.

Requests that are timed are sent by `packager.load`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import urllib3

from packager.cli.serving.routes import AddressRoute, Connection, Route
from packager.core.documents import NotStrict, field, parse_object
from packager.core.remote.pools import timely
from packager.core.text import quote_answer, repeats_secret

_ANSWER_S = 600.0
_CONNECT_S = 10.0
_LONGEST_ANSWER = 64 * 1024 * 1024  # bytes; more cannot be the answer of some hundred tokens
_MOST_TOKENS = 2**31  # of a prompt
_BEST = 5  # the most that OpenAI's schema allows
_NOWHERE = (404, b"")  # of a path to which no way leads
_TOKEN = "token_id:"  # how vLLM names a token by its number


class BadAnswer(Exception):
    """The server refused the request, or its answer is invalid."""


class Server:
    """A running server, used from several threads; each request takes at most `timeout_s`."""

    def __init__(
        self,
        server: str | Route,
        *,
        connections: int = 8,
        headers: Mapping[str, str] | None = None,
        timeout_s: float = _ANSWER_S,
    ) -> None:
        self._route = AddressRoute(server, headers) if isinstance(server, str) else server
        self.shown = self._route.shown
        self._timeout_s = timeout_s
        self._http = _pool(self._route.connection, connections)

    def model(self) -> str:
        """Return the first model's name; "" for servers without a list of models.

        Proxies and servers of one model answer with anything: only a list of data counts.
        """
        if self._route.model:
            return self._route.model
        status, body = self._get("/v1/models", 30.0)
        if status != 200:
            return ""
        try:
            listed = field(parse_object(body), "data", list)
            name = field(listed[0], "id", str) if listed else ""
        except NotStrict:
            return ""
        if repeats_secret(name):
            raise BadAnswer("it names its model by a credential that it was sent")
        return name

    def adapters(self) -> tuple[str, ...]:
        """Return the names of its list that have a parent: its adapters."""
        status, body = self._get("/v1/models", 30.0)
        try:
            listed = field(parse_object(body), "data", list) if status == 200 else []
        except NotStrict:
            return ()
        return listed_adapters(listed)

    def metrics(self) -> str:
        """Return the text of the server's metrics; "" where it has none."""
        status, body = self._get("/metrics", 30.0)
        return body.decode("utf-8", "replace") if status == 200 else ""

    def post(
        self, path: str, body: Mapping[str, Any], headers: Mapping[str, str] | None = None
    ) -> tuple[int, bytes]:
        """Return the status and the whole answer to a body; raises `BadAnswer` without an end."""
        response = self._post(path, body, headers)
        if response is None:
            return _NOWHERE
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
            raise BadAnswer(f"{endpoint} answered {status}: {quote_answer(data, 300)}")
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
            if response is None:
                return {}
            try:
                if response.status != 200:
                    return {}
                return _chances(b"".join(_pieces(response)))
            finally:
                response.close()
        except (BadAnswer, urllib3.exceptions.HTTPError, OSError):
            return {}

    def _post(
        self, endpoint: str, body: Mapping[str, Any], headers: Mapping[str, str] | None = None
    ) -> urllib3.BaseHTTPResponse | None:
        data = json.dumps(body).encode()
        asked = self._route.request("POST", endpoint, data, streams=False)
        if asked is None:
            return None
        return self._http.request(
            "POST",
            asked.url,
            body=data,
            headers={**asked.headers, **(headers or {}), "content-type": "application/json"},
            timeout=urllib3.Timeout(connect=_CONNECT_S, total=self._timeout_s),
            preload_content=False,
        )

    def _get(self, path: str, timeout_s: float) -> tuple[int, bytes]:
        asked = self._route.request("GET", path, b"", streams=False)
        if asked is None:
            return _NOWHERE
        response = self._http.request(
            "GET",
            asked.url,
            headers=asked.headers,
            timeout=urllib3.Timeout(total=min(timeout_s, self._timeout_s)),
            preload_content=False,
        )
        try:
            return response.status, b"".join(_pieces(response))
        except BaseException:
            response.close()
            raise


def listed_adapters(models: Sequence[Any]) -> tuple[str, ...]:
    """Return the names of a server's list that have a parent: its adapters."""
    found = (one for one in models if isinstance(one, dict) and one.get("parent"))
    return tuple(str(one.get("id")) for one in found)


def _pool(way: Connection, connections: int) -> urllib3.PoolManager:
    """Return what makes the connections of a route."""
    given: dict[str, Any] = {"maxsize": connections, "retries": False, "block": False}
    if way.tls is not None:
        given["ssl_context"] = way.tls
    if way.server_name:
        given |= {"server_hostname": way.server_name, "assert_hostname": way.server_name}
    return timely(
        urllib3.ProxyManager(way.proxy, **given) if way.proxy else urllib3.PoolManager(**given)
    )


def _pieces(response: urllib3.BaseHTTPResponse) -> Iterator[bytes]:
    """Yield the body in pieces; raises where it exceeds the limit."""
    size = 0
    for piece in response.stream():
        size += len(piece)
        if size > _LONGEST_ANSWER:
            raise BadAnswer("its answer does not end")
        yield piece


def _chances(data: bytes) -> dict[int, float]:
    """Read the log-probabilities of a one-token answer; empty for another format."""
    try:
        choices = field(parse_object(data), "choices", list)
        best = choices[0]["logprobs"]["top_logprobs"][0]
        chances = {int(name.removeprefix(_TOKEN)): float(value) for name, value in best.items()}
    except (NotStrict, LookupError, TypeError, AttributeError, ValueError, OverflowError):
        return {}
    return chances if all(value <= 0 for value in chances.values()) else {}


def _count(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < _MOST_TOKENS:
        raise ValueError("tokens are counted")
    return value

"""The client that loads a server: one event loop, each read timed when it is taken.

Imports aiohttp, with its event loop, when a client is opened; `--help` does not pay for it.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any

from packager.addons.bench.load.answers import LONGEST_ANSWER, AnswerFailed, AnswerReader
from packager.addons.bench.load.pooled_answers import PooledAnswerReader
from packager.addons.bench.load.template_answers import TemplateAnswerReader
from packager.addons.bench.load.values import Failure, LoadRequest, LoadResult
from packager.cli.serving.adapters import adapter_headers
from packager.cli.serving.routes import AddressRoute, BrokenStream, Route
from packager.core.text import QUOTED_BYTES, quote_answer
from packager.core.version import __version__

if TYPE_CHECKING:
    import aiohttp

_CONNECT_S = 10.0
_METRICS_S = 30.0
_IDLE_S = 2.0  # shorter than any server keeps an idle connection (uvicorn: 5 s)
_READ_BYTES = 256 * 1024  # that may wait in a connection
_REFUSED = (400, 422, 424)  # 424: SageMaker, of a server that answered one of the others
_SAID = 300  # characters of a refusal that are shown

Now = Callable[[], float]  # seconds since the load began


@dataclass(slots=True)
class _Exchange:
    """A request on its way, as far as it has come."""

    now: Now
    sent_s: float
    first_byte_s: float | None = None
    last_s: float | None = None  # of the last bytes
    status: int | None = None
    answer: AnswerReader | None = None
    failure: Failure | None = None
    reason: str = ""


@dataclass(slots=True)
class _Extras:
    """Extra fields of a request, if the server accepts them."""

    trials: list[dict[str, Any]] = field(default_factory=list)  # the last one is empty
    taken: bool = False  # an answer came with the first of the trials; a refusal is not about it


class LoadClient:
    """Sends requests to one server. Used within one event loop, `async with`.

    A server is an address, for which `headers` are, or a route with headers of its own.
    `connections` may be open at once, 0 for no limit; each is kept for the next request. With
    `token_ids` requests include vLLM's `return_token_ids`, until the server refuses it.
    """

    def __init__(
        self,
        server: str | Route,
        *,
        model: str = "",
        headers: Mapping[str, str] | None = None,
        connections: int = 0,
        timeout_s: float = 600.0,
        token_ids: bool = False,
    ) -> None:
        self._route = AddressRoute(server, headers) if isinstance(server, str) else server
        self._model = {"model": model} if model else {}
        self._headers = {
            "accept-encoding": "identity",  # what is compressed is held back until it is worth it
            "user-agent": f"packager/{__version__}",
        }
        self._connections = connections
        self._timeout_s = timeout_s
        self._ids = {"return_token_ids": True} if token_ids else {}
        self._extras: dict[tuple[str, ...], _Extras] = {}
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> LoadClient:
        import aiohttp

        tls = self._route.connection.tls
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=self._connections,
                keepalive_timeout=_IDLE_S,
                ssl=True if tls is None else tls,
            ),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S),
            headers=self._headers,
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            read_bufsize=_READ_BYTES,
            trace_configs=[_trace()],
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._session is not None:
            await self._session.close()

    async def send(self, request: LoadRequest, number: int, now: Now) -> LoadResult:
        """Send a request and return what came back; a failure is in it.

        A task that is cancelled meanwhile returns the result so far, as `cancelled`.
        """
        sent = _Exchange(now=now, sent_s=now())
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._exchange(request, sent)
        except AnswerFailed as error:
            sent.failure, sent.reason = error.failure, error.reason
        except TimeoutError:
            sent.failure = "deadline"
            sent.reason = f"it was not finished within {self._timeout_s:g} s"
            sent.last_s = now()
        except asyncio.CancelledError:
            sent.failure, sent.reason = "cancelled", "the load ended before it"
            sent.last_s = now()
        return _result(request, number, sent)

    async def metrics(self) -> str:
        """Return the text of the server's metrics; "" where it has none or does not answer."""
        import aiohttp

        asked = self._route.request("GET", "/metrics", b"", streams=False)
        if asked is None:
            return ""
        try:
            async with asyncio.timeout(min(_METRICS_S, self._timeout_s)):
                async with self._opened.get(
                    asked.url, headers=asked.headers, **self._ways
                ) as response:
                    if response.status != 200:
                        return ""
                    body = bytearray()
                    while data := await response.content.readany():
                        body += data
                        if len(body) > LONGEST_ANSWER:
                            return ""
                    return body.decode("utf-8", "replace")
        except (aiohttp.ClientError, OSError, TimeoutError):
            return ""

    @property
    def _ways(self) -> dict[str, Any]:
        """Return how a request's connection is made."""
        way = self._route.connection
        named = {"server_hostname": way.server_name} if way.server_name else {}
        return {**named, **({"proxy": way.proxy} if way.proxy else {})}

    @property
    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            raise RuntimeError("the client is used before it is opened")
        return self._session

    async def _exchange(self, request: LoadRequest, sent: _Exchange) -> None:
        import aiohttp

        try:
            response = await self._post(request, sent)
        except (aiohttp.ServerTimeoutError, aiohttp.ClientConnectionError, OSError) as error:
            raise AnswerFailed("connection", _reason(error)) from error
        except aiohttp.ClientError as error:
            raise AnswerFailed("invalid", f"its answer is not HTTP ({_name(error)})") from error
        try:
            await self._receive(request, response, sent)
        except (aiohttp.ClientError, OSError) as error:
            if not (sent.answer and sent.answer.is_complete):
                raise AnswerFailed("cut", _reason(error)) from error
        finally:
            response.close()  # a connection whose answer was read to its end is kept all the same

    async def _post(self, request: LoadRequest, sent: _Exchange) -> aiohttp.ClientResponse:
        """Send the request; again without what the server refuses beside it."""
        is_own_form = request.template is not None
        named = {"model": request.model} if request.model else self._model
        body = {**request.body, **({} if is_own_form else named)}
        also = adapter_headers(request.endpoint, request.model)
        extras = self._extras_of({} if is_own_form else body)
        trials = [extras.trials[0]] if extras.taken else list(extras.trials)
        for trial in trials:
            data = json.dumps({**body, **trial}).encode()
            streams = bool(body.get("stream"))
            asked = self._route.request("POST", request.endpoint, data, streams=streams)
            if asked is None:
                raise AnswerFailed("connection", f"no way leads to its {request.endpoint}")
            sent.sent_s = sent.now()
            response = await self._opened.post(
                asked.url,
                data=data,
                headers={**asked.headers, **also, "content-type": "application/json"},
                allow_redirects=False,
                trace_request_ctx=sent,
                **self._ways,
            )
            if response.status == 200:
                if not extras.taken:
                    extras.trials, extras.taken = [trial], True
                return response
            if response.status not in _REFUSED or trial is trials[-1]:
                return response
            response.close()
        raise AssertionError("the last trial returns")

    def _extras_of(self, body: Mapping[str, Any]) -> _Extras:
        """Return the extra fields to try with a request of this form, the most first."""
        is_openai = "messages" in body or "prompt" in body
        counts = is_openai and body.get("stream") and "stream_options" not in body
        usage = {"stream_options": {"include_usage": True}} if counts else {}
        ids = self._ids if is_openai else {}
        key = (*ids, *usage)
        if key not in self._extras:
            trials: list[dict[str, Any]] = [{**ids, **usage}]
            if ids and usage:
                trials.append(usage)
            if ids or usage:
                trials.append({})
            self._extras[key] = _Extras(trials=trials)
        return self._extras[key]

    async def _receive(
        self, request: LoadRequest, response: aiohttp.ClientResponse, sent: _Exchange
    ) -> None:
        """Read an answer to its end; the time is taken at every read."""
        now, content = sent.now, response.content
        sent.status = response.status
        if response.status != 200:
            said = quote_answer(await _start_of(content), _SAID)
            sent.last_s = now()
            raise AnswerFailed("status", f"{request.endpoint} answered {response.status}: {said}")
        comes = self._route.answer(response.headers)
        unwrap = comes.unwrap
        answer = sent.answer = _reader(request, comes.content_type)
        while data := await content.readany():
            at_s = now()
            if sent.first_byte_s is None:
                sent.first_byte_s = at_s
            sent.last_s = at_s
            if unwrap is not None and not (data := _unwrapped(unwrap, data)):
                continue
            answer.feed(data, at_s)
        answer.end(sent.last_s if sent.last_s is not None else now())


def _reader(request: LoadRequest, content_type: str) -> AnswerReader:
    if request.template is not None:
        return TemplateAnswerReader(content_type, request.template)
    if request.texts:
        return PooledAnswerReader(content_type, request.texts)
    return AnswerReader(content_type)


async def _start_of(content: aiohttp.StreamReader) -> bytes:
    """Read as much of a refusal as is looked through for secrets."""
    found = bytearray()
    while len(found) < QUOTED_BYTES and (data := await content.readany()):
        found += data
    return bytes(found[:QUOTED_BYTES])


def _unwrapped(unwrap: Callable[[bytes], bytes], data: bytes) -> bytes:
    """Return the server's own bytes. Raises `AnswerFailed` where it was broken off."""
    try:
        return unwrap(data)
    except BrokenStream as error:
        raise AnswerFailed("server", f"it broke off: {quote_answer(str(error), _SAID)}") from error


def _result(request: LoadRequest, number: int, sent: _Exchange) -> LoadResult:
    answer = sent.answer
    return LoadResult(
        number=number,
        sent_s=sent.sent_s,
        ended_s=sent.last_s if sent.last_s is not None else sent.now(),
        first_byte_s=sent.first_byte_s,
        is_streamed=answer.is_streamed if answer else True,
        asked_tokens=_asked_tokens(request.body),
        chunks=tuple(answer.chunks) if answer else (),
        text=answer.text if answer else "",
        texts=answer.texts if answer else 0,
        input_tokens=answer.input_tokens if answer else None,
        output_tokens=answer.output_tokens if answer else None,
        reasoning_tokens=answer.reasoning_tokens if answer else None,
        own_input_tokens=request.input_tokens,
        adapter=request.adapter,
        tokenizer_failed=request.tokenizer_failed,
        token_ids=answer.token_ids if answer else (),
        prompt_token_ids=answer.prompt_token_ids if answer else (),
        status=sent.status,
        failure=sent.failure,
        reason=sent.reason,
    )


def _asked_tokens(body: Mapping[str, Any]) -> int | None:
    """Return the most tokens that a body requests, in OpenAI's form or TGI's."""
    parameters = body.get("parameters")
    names = ("max_completion_tokens", "max_tokens", "max_new_tokens")
    places = (body, parameters if isinstance(parameters, Mapping) else {})
    found = [place[name] for place in places for name in names if name in place]
    return found[0] if found and isinstance(found[0], int) else None


def _trace() -> aiohttp.TraceConfig:
    """Return what notes the time when a request is written to its connection.

    Many requests of one moment are written one after the other, and may have to open connections
    first: what passes before is the client's, or the network's.
    """
    import aiohttp

    async def writes(_session: object, context: Any, _params: object) -> None:
        sent = context.trace_request_ctx
        if isinstance(sent, _Exchange):
            sent.sent_s = sent.now()

    config = aiohttp.TraceConfig()
    config.on_request_headers_sent.append(writes)
    return config


def _reason(error: Exception) -> str:
    """Return the reason of a connection error, without its address."""
    if isinstance(error, TimeoutError):
        return "it did not answer in time"
    return f"the connection failed ({_name(error)})"


def _name(error: Exception) -> str:
    """Return what happened: the system's words where there are some, else the error's name."""
    system = getattr(error, "os_error", error)
    if isinstance(system, OSError) and system.errno:
        return os.strerror(system.errno)
    return type(error).__name__

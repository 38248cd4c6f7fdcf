"""The runtime protocol: InvokeEndpoint and InvokeEndpointWithResponseStream.

A body is sent to the container's /invocations unchanged, and so is its answer; a container's error
becomes SageMaker's, with status 424.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress

import aiohttp
from aiohttp import web

from packager.addons.deploy.sagemaker.api_refusals import ValidationRefused
from packager.addons.server.bodies import Held, Part, body_of
from packager.addons.server.endpoints.adapters import IDENTIFIER, AdapterSpec
from packager.addons.server.endpoints.deployments import COMPONENT, ENDPOINT
from packager.addons.server.endpoints.traffic import TrafficServer, pick_variant
from packager.addons.server.eventstream import CONTENT_TYPE, exception_message, payload_parts
from packager.addons.server.invocation_errors import (
    InvocationError,
    invalid_invocation,
    invocation_too_large,
    model_error,
    no_server,
    timed_out,
)
from packager.addons.server.operations.common import find
from packager.addons.server.refusals import BodyTooLarge, BodyTooSlow
from packager.addons.server.request_context import answer_headers, request_id
from packager.addons.server.services import ServeServices
from packager.core.capture.keeping import OPT_OUT, Kept

LONGEST_BODY = 6 * 1024 * 1024  # of a request and of an answer, as in the API's model
ANSWER_S = 60.0  # SageMaker's limit for an answer
STREAM_S = 480.0  # and for a stream
_CONNECT_S = 5.0
_PREFIX = "X-Amzn-SageMaker-"
_FORWARDED = ("Custom-Attributes", "Inference-Id", "Session-Id", "Prefix-Aware-Id")
_RETURNED = ("Custom-Attributes", "New-Session-Id", "Closed-Session-Id")


def routes(services: ServeServices, held: Held) -> list[web.RouteDef]:
    """Return the routes of the runtime protocol; answers of containers are counted by `held`."""
    runtime = Runtime(services, held)
    return [
        web.post("/endpoints/{name}/invocations", runtime.invoke),
        web.post("/endpoints/{name}/invocations-response-stream", runtime.stream),
    ]


class Runtime:
    """Passes invocations on to containers."""

    def __init__(self, services: ServeServices, held: Held) -> None:
        self._services = services
        self._held = held

    async def invoke(self, request: web.Request) -> web.StreamResponse:
        """Answer InvokeEndpoint."""
        try:
            server, adapter = await self._server_of(request)
            with self._held.part() as part:
                with server.leased():
                    response = await self._invoked(request, server, adapter, part)
                # Written here, not by aiohttp, so that it is counted until the client has it.
                with suppress(ConnectionError):
                    await response.prepare(request)
                    await response.write_eof()
                return response
        except InvocationError as error:
            return _refused(error)

    async def stream(self, request: web.Request) -> web.StreamResponse:
        """Answer InvokeEndpointWithResponseStream."""
        try:
            server, adapter = await self._server_of(request)
            with server.leased():
                return await self._streamed(request, server, adapter)
        except InvocationError as error:
            return _refused(error)

    async def _invoked(
        self, request: web.Request, server: TrafficServer, adapter: str, part: Part
    ) -> web.Response:
        body = await _body(request)
        endpoint = request.match_info["name"]
        headers = _headers(request, adapter, accept=request.headers.get("Accept"))
        settings = self._services.settings
        try:
            async with self._asked(server, body, headers, ANSWER_S) as answer:
                data = await _read_answer(answer, part)
        except TimeoutError:
            raise timed_out(settings, endpoint) from None
        except (aiohttp.ClientError, OSError) as error:
            raise model_error(settings, endpoint, 500, _lost(error)) from None
        if len(data) > LONGEST_BODY:
            message = f"the answer has more than {LONGEST_BODY} bytes".encode()
            raise model_error(settings, endpoint, 500, message)
        if answer.status != 200:
            raise model_error(settings, endpoint, answer.status, data)
        kind = answer.headers.get("Content-Type", "application/octet-stream")
        kept = self._keep(request, server, body)
        if kept is not None:
            kept.take(data)
            kept.end(request_id(), kind)
        headers = {"Content-Type": kind, **answer_headers(), **_told(server, answer)}
        return web.Response(body=data, headers=headers)

    async def _streamed(
        self, request: web.Request, server: TrafficServer, adapter: str
    ) -> web.StreamResponse:
        body = await _body(request)
        endpoint = request.match_info["name"]
        headers = _headers(request, adapter, accept=request.headers.get(f"{_PREFIX}Accept"))
        settings = self._services.settings
        response: web.StreamResponse | None = None
        kept: Kept | None = None
        kind, is_whole = "", False
        try:
            async with self._asked(server, body, headers, STREAM_S) as answer:
                if answer.status != 200:
                    data = await answer.content.read(LONGEST_BODY)
                    raise model_error(settings, endpoint, answer.status, data)
                kind = answer.headers.get("Content-Type", "application/octet-stream")
                response = web.StreamResponse(
                    headers={
                        "Content-Type": CONTENT_TYPE,
                        f"{_PREFIX}Content-Type": kind,
                        **answer_headers(),
                        **_told(server, answer),
                    }
                )
                response.enable_chunked_encoding()
                kept = self._keep(request, server, body)
                with _to_client():
                    await response.prepare(request)
                async for piece in answer.content.iter_any():
                    if kept is not None:
                        kept.take(piece)
                    for message in payload_parts(piece):
                        with _to_client():
                            await response.write(message)
            last, is_whole = b"", True
        except TimeoutError:
            if response is None:
                raise timed_out(settings, endpoint) from None
            last = _broken("ModelInvocationTimeExceeded", "the stream took too long")
        except _ClientGone:
            assert response is not None
            return response
        except (aiohttp.ClientError, OSError) as error:
            if response is None:
                raise model_error(settings, endpoint, 500, _lost(error)) from None
            last = _broken("StreamBroken", _lost(error).decode())
        finally:
            if kept is not None:
                kept.end(request_id(), kind, is_whole=is_whole)
        assert response is not None
        with suppress(ConnectionError):
            await response.write_eof(last)
        return response

    def _keep(self, request: web.Request, server: TrafficServer, body: bytes) -> Kept | None:
        """Return what keeps an answer that has begun; None where it is not captured."""
        capture = self._services.endpoints.capture(request.match_info["name"], server.variant)
        if capture is None or _opted_out(request):
            return None
        kind = request.headers.get("Content-Type", "application/octet-stream")
        return capture.begin(body, kind, header_value(request, "Inference-Id"))

    async def _server_of(self, request: web.Request) -> tuple[TrafficServer, str]:
        """Choose the container of a request, and its adapter; raises an `InvocationError`."""
        name = request.match_info["name"]
        for header in ("Target-Model", "Target-Container-Hostname", "Enable-Explanations"):
            if header_value(request, header):
                raise invalid_invocation(f"{_PREFIX}{header} is not supported by packager serve.")
        pools = self._services.endpoints.route(name)
        component = header_value(request, "Inference-Component")
        if component:
            return await self._of_component(name, component)
        if not pools:
            raise await self._unready(name)
        target = header_value(request, "Target-Variant")
        variant = target or pick_variant(pools)
        if variant is None or variant not in pools:
            raise invalid_invocation(f"Variant {target} was not found in endpoint {name}.")
        server = pools[variant].pick()
        if server is None:
            raise no_server(f"No container of endpoint {name} is ready; try again.")
        return server, ""

    async def _of_component(self, endpoint: str, component: str) -> tuple[TrafficServer, str]:
        try:
            found = await find(self._services, COMPONENT, component)
        except ValidationRefused:
            found = None
        if found is None or found.document["endpoint"] != endpoint:
            raise invalid_invocation(
                f"Inference component {component} of endpoint {endpoint} was not found."
            )
        spec = AdapterSpec.read((found.document["active"] or {}).get("adapter"))
        endpoints = self._services.endpoints
        pools = endpoints.pools(COMPONENT, spec.base if spec else component)
        if spec is not None:
            server = endpoints.adapters.pick(pools, component)
            if server is not None:
                return server, component
        for pool in pools.values() if spec is None else ():
            server = pool.pick()
            if server is not None:
                return server, ""
        raise no_server(f"No copy of inference component {component} is ready; try again.")

    async def _unready(self, name: str) -> InvocationError:
        """Return why an endpoint has no container that can answer."""
        account = self._services.settings.account
        try:
            found = await find(self._services, ENDPOINT, name)
        except ValidationRefused:
            return invalid_invocation(f"Endpoint {name} of account {account} not found.")
        if found.status == "InService":
            return invalid_invocation(
                "Inference Component Name header is required for endpoints to which you plan to "
                "deploy inference components."
            )
        return invalid_invocation(f"Endpoint {name} of account {account} is {found.status}.")

    @asynccontextmanager
    async def _asked(
        self, server: TrafficServer, body: bytes, headers: Mapping[str, str], most_s: float
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        session = self._services.endpoints.http()
        times = aiohttp.ClientTimeout(total=most_s, sock_connect=_CONNECT_S)
        url = f"{server.url}/invocations"
        # A redirect would make the server send requests to addresses that only this machine
        # reaches.
        async with session.post(
            url, data=body, headers=headers, timeout=times, allow_redirects=False
        ) as answer:
            yield answer


def _opted_out(request: web.Request) -> bool:
    """Return whether a client wants no capture; boto3 can only say so in CustomAttributes."""
    attributes = header_value(request, "Custom-Attributes").lower()
    return (
        request.headers.get(OPT_OUT, "").strip().lower() == "off"
        or f"{OPT_OUT.lower()}=off" in attributes
    )


class _ClientGone(Exception):
    """The client reads no more."""


def header_value(request: web.Request, name: str) -> str:
    """Return one of SageMaker's headers; "" without it."""
    return request.headers.get(f"{_PREFIX}{name}", "")


async def _body(request: web.Request) -> bytes:
    """Read a request's body; raises `InvocationError`."""
    refused = invocation_too_large(f"The request's body has more than {LONGEST_BODY} bytes.")
    if (request.content_length or 0) > LONGEST_BODY:
        raise refused
    try:
        body = await body_of(request, LONGEST_BODY, ANSWER_S)
    except BodyTooSlow:
        raise invalid_invocation("The request's body did not arrive in time.") from None
    except BodyTooLarge:
        raise refused from None
    if len(body) > LONGEST_BODY:  # it was read to check its signature
        raise refused
    return body


def _headers(request: web.Request, adapter: str, accept: str | None) -> dict[str, str]:
    """Return the headers for a container; signatures are not forwarded."""
    headers = {
        f"{_PREFIX}{name}": value for name in _FORWARDED if (value := header_value(request, name))
    }
    if adapter:
        headers[f"{_PREFIX}{IDENTIFIER}"] = adapter
    headers["Content-Type"] = request.headers.get("Content-Type", "application/octet-stream")
    headers["Accept"] = accept or "*/*"
    headers["Accept-Encoding"] = "identity"
    return headers


def _told(server: TrafficServer, answer: aiohttp.ClientResponse) -> dict[str, str]:
    """Return the headers of a client's answer."""
    headers = {
        f"{_PREFIX}{name}": value
        for name in _RETURNED
        if (value := answer.headers.get(f"{_PREFIX}{name}"))
    }
    return {"x-Amzn-Invoked-Production-Variant": server.variant, **headers}


def _refused(error: InvocationError) -> web.Response:
    return web.Response(
        status=error.http_status,
        body=error.body(),
        headers={
            "Content-Type": "application/json",
            "x-amzn-ErrorType": error.type,
            "x-amzn-RequestId": request_id(),
        },
    )


@contextmanager
def _to_client() -> Iterator[None]:
    """Raise `_ClientGone` for a client that reads no more, not for a container."""
    try:
        yield
    except ConnectionError as error:
        raise _ClientGone from error


def _broken(code: str, message: str) -> bytes:
    """Return the exception that ends a stream, and tells why."""
    return exception_message("ModelStreamError", {"Message": message, "ErrorCode": code})


async def _read_answer(answer: aiohttp.ClientResponse, part: Part) -> bytes:
    """Read a container's answer, or one byte more than it may have; raises `InvocationError`."""
    data = bytearray()
    while len(data) <= LONGEST_BODY and not answer.content.at_eof():
        piece = await answer.content.read(LONGEST_BODY + 1 - len(data))
        if not part.grow(len(piece)):
            raise no_server("The answers that are being sent take all memory; try again.")
        data += piece
    return bytes(data)


def _lost(error: Exception) -> bytes:
    """Return the error of a failed connection, for clients."""
    return f"the connection to the container failed: {type(error).__name__}".encode()

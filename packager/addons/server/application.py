"""The server: every request's way from its first byte to its answer, with all limits on it."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

from aiohttp import web

from packager.addons.deploy.sagemaker.api_refusals import ApiRefusal
from packager.addons.server import pages, runtime
from packager.addons.server.bodies import Held, body_of
from packager.addons.server.hosts import check_host, check_origin
from packager.addons.server.operations.table import OperationTable
from packager.addons.server.protocol import (
    CONTENT_TYPE,
    MAX_BODY_BYTES,
    ApiTarget,
    answer_bytes,
    check_content_type,
    error_document,
    read_body,
    read_target,
    wire_document,
)
from packager.addons.server.query_api import (
    answer_query,
    is_query,
    no_buckets,
    no_object,
    refused_query,
)
from packager.addons.server.refusals import (
    BodyTooLarge,
    InternalFailure,
    InvalidSignature,
    refusal_of,
    too_many_requests,
    unknown_operation,
)
from packager.addons.server.request_context import (
    RequestContext,
    answer_headers,
    begin_request,
    request_id,
    this_request,
)
from packager.addons.server.sagemaker.jumpstart import BUCKET
from packager.addons.server.sagemaker.operations import row_of
from packager.addons.server.services import ServeServices
from packager.addons.server.sigv4 import SignedRequest, Verifier
from packager.addons.server.used_signatures import SeenSignatures
from packager.core.text import escape

BODY_S = 30.0  # until a body has arrived
IDLE_S = 60.0  # of a connection without a complete request
MAX_AT_ONCE = 1000  # requests
MAX_INVOCATION_BYTES = 25 * 1024 * 1024  # of `InvokeEndpoint`, as of AWS
JSON = "application/json"
RUNTIME = "/endpoints/"  # paths of the runtime's protocol begin so

_READING = ("Describe", "List", "Get", "Search", "Filter", "Simulate")
_SERVICES = {  # of targets: in credentials
    "SageMaker": "sagemaker",
    "Logs_20140328": "logs",
    "AnyScaleFrontendService": "application-autoscaling",
    "GraniteServiceVersion20100801": "monitoring",
}

_SCOPE = re.compile(r"Credential=[^/,\s]+/[0-9]+/[a-z0-9-]+/([a-z0-9-]{1,64})/aws4_request")

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """Access rules: the network, and the signatures that requests need."""

    on_loopback: bool
    verifier: Verifier | None = None  # None: requests need no signature
    seen: SeenSignatures | None = None  # with a verifier


@dataclass(frozen=True, slots=True, kw_only=True)
class Journal:
    """Functions that write to the server's log; a call has one line, or several of a failure."""

    failure: Callable[[str], None]
    access: Callable[[str], None] | None = None  # None: requests are not logged


def make_application(
    services: ServeServices,
    *,
    guard: Guard,
    journal: Journal,
    with_pages: bool = False,
    body_s: float = BODY_S,
    check_answers: bool = False,
) -> web.Application:
    """Return the application; it starts and stops the endpoints.

    Pages cannot sign requests: with them, the guard has no verifier. With `check_answers`, an
    answer that AWS's model does not allow is a bug: for tests.
    """
    table = OperationTable(services)
    held = Held()
    front = _Front(table, guard, journal, body_s, check_answers, held)
    application = web.Application(
        middlewares=[front.answer, front.protect], client_max_size=MAX_INVOCATION_BYTES
    )
    application.router.add_post("/", front.operation)
    application.router.add_get(f"/{{bucket:{BUCKET}[a-z0-9-]+}}/{{key:.+}}", front.jumpstart)
    application.router.add_routes(runtime.routes(services, held))
    if with_pages:
        pages.mount(application, services, table.call)

    async def with_endpoints(_: web.Application) -> AsyncIterator[None]:
        await services.endpoints.start()
        yield
        await services.endpoints.close()

    application.cleanup_ctx.append(with_endpoints)
    return application


class _Front:
    """Checks requests before the operations handle them."""

    def __init__(
        self,
        table: OperationTable,
        guard: Guard,
        journal: Journal,
        body_s: float,
        check_answers: bool,
        held: Held,
    ) -> None:
        self._table = table
        self._guard = guard
        self._journal = journal
        self._body_s = body_s
        self._check_answers = check_answers
        self._at_once = 0
        self._held = held

    @web.middleware
    async def answer(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Answer with an id, and every failure with the protocol's form of it."""
        asked = begin_request()
        started = time.monotonic()
        self._at_once += 1
        try:
            if self._at_once > MAX_AT_ONCE:
                raise too_many_requests("too many requests are being answered; try again")
            response = await handler(request)
        except web.HTTPException as error:
            response = error if error.status < 400 else _unknown_path(request, error)
        except Exception as error:
            refusal = refusal_of(error)
            if isinstance(refusal, InternalFailure):
                self._tell_failure(request, asked, error)
            if is_query(request.headers.get("Content-Type")):
                response = refused_query(refusal, asked.id)
            else:
                response = refused(refusal)
        finally:
            self._at_once -= 1
        if not response.prepared:
            for name, value in answer_headers().items():
                response.headers.setdefault(name, value)
        if self._journal.access is not None:
            self._journal.access(_line(request, asked, response, time.monotonic() - started))
        return response

    @web.middleware
    async def protect(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Refuse unauthorized requests, before any other work."""
        headers = request.headers
        if self._guard.on_loopback:
            check_host(headers.get("Host"))
        check_origin(
            request.method,
            headers.get("Host"),
            headers.get("Origin"),
            headers.get("Sec-Fetch-Site"),
        )
        if "/s3/aws4_request" in headers.get("Authorization", "") and not is_jumpstart(request):
            return no_buckets(request_id())
        largest = _largest(request)
        if (request.content_length or 0) > largest:
            raise BodyTooLarge(f"the request's body has more than {largest} bytes")
        with self._held.part() as part:
            if not part.grow(_announced(request, largest)):
                raise too_many_requests(
                    "requests that are being answered take all memory; try again"
                )
            if self._guard.verifier is not None:
                await self._check_signature(request, self._guard.verifier)
            return await handler(request)

    async def operation(self, request: web.Request) -> web.Response:
        """Answer an operation of AWS JSON 1.1."""
        if is_query(request.headers.get("Content-Type")):
            return answer_query(
                await self._body(request),
                self._table.settings,
                request_id(),
                service=_signed_for(request),
                caller=this_request().caller,
            )
        target = read_target(request.headers.get("X-Amz-Target"))
        this_request().operation = target.operation
        operation = self._table.find(target)
        if operation is None:
            service = _SERVICES.get(target.service) or _signed_for(request)
            says = row_of(service, target.operation).says
            raise unknown_operation(f"{target.operation!r} of {target.service}: {says}")
        check_content_type(request.headers.get("Content-Type"))
        document = self._table.read_input(target, read_body(await self._body(request)))
        answer = wire_document(await operation(document))
        if self._check_answers:
            self._table.check_answer(target, answer)
        return web.Response(body=answer_bytes(answer), headers={"Content-Type": CONTENT_TYPE})

    async def jumpstart(self, request: web.Request) -> web.Response:
        """Answer a request for an object of AWS's JumpStart bucket, made from the mapping."""
        asked = request.match_info
        found = self._table.settings.jumpstart.document(asked["bucket"], asked["key"])
        if found is None:
            return no_object(request_id())
        body = json.dumps(found, separators=(",", ":")).encode()
        tag = hashlib.md5(body, usedforsecurity=False).hexdigest()
        return web.Response(body=body, content_type=JSON, headers={"ETag": f'"{tag}"'})

    async def _check_signature(self, request: web.Request, verifier: Verifier) -> None:
        headers = [(name, value) for name, value in request.headers.items()]
        services, changes = _meaning(request)
        claim = verifier.claim(headers, services)
        verifier.prove(
            claim,
            SignedRequest(
                method=request.method,
                target=request.raw_path,
                headers=headers,
                body=await self._body(request),
            ),
        )
        this_request().caller = claim.key.name
        if changes and self._guard.seen is not None:
            used = await asyncio.to_thread(self._guard.seen.use, claim.signature, verifier.now())
            if not used:
                raise InvalidSignature("a request with this signature was made already")

    async def _body(self, request: web.Request) -> bytes:
        """Read the body; later readers get the same bytes."""
        return await body_of(request, _largest(request), self._body_s)

    def _tell_failure(self, request: web.Request, asked: RequestContext, error: Exception) -> None:
        import traceback

        traceback_text = "".join(traceback.format_exception(error))
        name = asked.operation or escape(request.path)
        self._journal.failure(f"{name} failed, request {asked.id}\n{traceback_text}")


def is_jumpstart(request: web.Request) -> bool:
    """Return whether the request is for an object of AWS's JumpStart bucket."""
    return request.method in ("GET", "HEAD") and request.path.startswith(f"/{BUCKET}")


def _largest(request: web.Request) -> int:
    return MAX_BODY_BYTES if request.path == "/" else MAX_INVOCATION_BYTES


def _announced(request: web.Request, largest: int) -> int:
    """Return how many bytes a request's body may take."""
    if not request.can_read_body:
        return 0
    is_known = request.content_length is not None and not request.headers.get("Content-Encoding")
    return (request.content_length or 0) if is_known else largest


def refused(refusal: ApiRefusal) -> web.Response:
    """Return the answer to a request that is refused."""
    return web.Response(
        status=refusal.http_status,
        body=answer_bytes(error_document(refusal)),
        headers={"Content-Type": CONTENT_TYPE, "x-amzn-ErrorType": refusal.type},
    )


def _meaning(request: web.Request) -> tuple[frozenset[str], bool]:
    """Return which services a request may be signed for, and whether it changes anything."""
    if is_jumpstart(request):
        return frozenset({"s3"}), False
    if request.path != "/":
        return frozenset({"sagemaker"}), False  # an invocation's body is not kept
    if is_query(request.headers.get("Content-Type")):
        return frozenset({"iam", "sts"}), False
    target: ApiTarget = read_target(request.headers.get("X-Amz-Target"))
    service = _SERVICES.get(target.service)
    services = frozenset({service}) if service else frozenset(_SERVICES.values())
    return services, not target.operation.startswith(_READING)


def _signed_for(request: web.Request) -> str:
    """Return the service that a request is signed for; "" where it is not signed."""
    found = _SCOPE.search(request.headers.get("Authorization", ""))
    return found[1] if found else ""


def _unknown_path(request: web.Request, error: web.HTTPException) -> web.Response:
    """Refuse a path that is none of ours: other services have theirs, such as `/functions`."""
    service = _signed_for(request)
    reason = "there is nothing at this path"
    if request.path.endswith("/async-invocations"):
        reason = row_of("sagemaker", "InvokeEndpointAsync").says
    elif service not in ("", *_SERVICES.values()):
        reason = f"{service!r} is not answered here: {row_of(service, '').says}"
    response = refused(unknown_operation(reason))
    response.set_status(error.status)
    if "Allow" in error.headers:
        response.headers["Allow"] = error.headers["Allow"]
    return response


def _line(
    request: web.Request, asked: RequestContext, response: web.StreamResponse, seconds: float
) -> str:
    who = asked.caller or "-"
    what = asked.operation or escape(f"{request.method} {request.path}")
    size = response.content_length if isinstance(response, web.Response) else None
    return (
        f"{request.remote or '-'} {who} {what} {response.status} "
        f"{seconds * 1000:.1f} ms {size if size is not None else '-'} B {asked.id}"
    )

"""Refusals before a request's document is read: access, protocol, limits.

Types are those of AWS's common errors, which its clients know; a bug is told as `InternalFailure`
without details.
"""

from __future__ import annotations

from packager.addons.deploy.sagemaker.api_refusals import (
    ApiRefusal,
    ResourceInUse,
    ResourceNotFound,
)
from packager.core.errors import PackagerError, Unavailable, UsageError


def unknown_operation(message: str, *, hint: str = "") -> ApiRefusal:
    """Return an error: the server does not have the operation."""
    return ApiRefusal(message, hint=hint, type="UnknownOperationException", http_status=404)


def unreadable_body(message: str, *, hint: str = "") -> ApiRefusal:
    """Return an error: the body is not a JSON object within the limits."""
    return ApiRefusal(message, hint=hint, type="SerializationException")


def unsupported_content_type(message: str, *, hint: str = "") -> ApiRefusal:
    """Return an error: the body is announced as something else than JSON of this protocol."""
    return ApiRefusal(message, hint=hint, type="UnsupportedMediaTypeException", http_status=415)


class BodyTooLarge(ApiRefusal):
    """The body is longer than any request of the API."""

    type = "RequestEntityTooLargeException"
    http_status = 413


class BodyTooSlow(ApiRefusal):
    """The body did not arrive in time."""

    type = "RequestTimeoutException"
    http_status = 408


def client_gone(message: str, *, hint: str = "") -> ApiRefusal:
    """Return an error: the client disconnected during its request: the answer is never read."""
    return ApiRefusal(message, hint=hint, type="RequestAbortedException")


def too_many_requests(message: str, *, hint: str = "") -> ApiRefusal:
    """Return an error: so many requests are being answered that no other is begun."""
    return ApiRefusal(message, hint=hint, type="ThrottlingException", http_status=400)


def foreign_host(message: str, *, hint: str = "") -> ApiRefusal:
    """Return an error: the request comes from a page of another site, or names another host."""
    return ApiRefusal(message, hint=hint, type="AccessDeniedException", http_status=403)


def missing_signature(message: str, *, hint: str = "") -> ApiRefusal:
    """Return an error: the request is not signed, and has to be."""
    return ApiRefusal(
        message, hint=hint, type="MissingAuthenticationTokenException", http_status=403
    )


def incomplete_signature(message: str, *, hint: str = "") -> ApiRefusal:
    """Return an error: the request is signed in a way that the protocol does not have."""
    return ApiRefusal(message, hint=hint, type="IncompleteSignatureException")


def unknown_key(message: str, *, hint: str = "") -> ApiRefusal:
    """Return an error: no key of that id is configured."""
    return ApiRefusal(message, hint=hint, type="UnrecognizedClientException", http_status=403)


class InvalidSignature(ApiRefusal):
    """The signature is wrong, too old, or was used before."""

    type = "InvalidSignatureException"
    http_status = 403


def service_unavailable(message: str, *, hint: str = "") -> ApiRefusal:
    """Return an error: something that the operation needs does not answer."""
    return ApiRefusal(message, hint=hint, type="ServiceUnavailable", http_status=503)


class InternalFailure(ApiRefusal):
    """A bug."""

    type = "InternalFailure"
    http_status = 500

    def __init__(self) -> None:
        super().__init__("the server failed; its log has the reason under this request's id")


def refusal_of(error: Exception) -> ApiRefusal:
    """Return an error as clients see it; internal errors become a bug without details."""
    from packager.addons.server.jobs.errors import JobExists, JobMissing

    match error:
        case ApiRefusal():
            return error
        case JobMissing():
            return ResourceNotFound(error.message)
        case JobExists():
            return ResourceInUse(error.message)
        case UsageError():
            return ApiRefusal(error.message, hint=error.hint)
        case Unavailable():
            return service_unavailable(error.message)
        case PackagerError() | _:
            return InternalFailure()

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


class UnknownOperation(ApiRefusal):
    """The server does not have the operation."""

    type = "UnknownOperationException"
    http_status = 404


class UnreadableBody(ApiRefusal):
    """The body is not a JSON object within the limits."""

    type = "SerializationException"


class UnsupportedContentType(ApiRefusal):
    """The body is announced as something else than JSON of this protocol."""

    type = "UnsupportedMediaTypeException"
    http_status = 415


class BodyTooLarge(ApiRefusal):
    """The body is longer than any request of the API."""

    type = "RequestEntityTooLargeException"
    http_status = 413


class BodyTooSlow(ApiRefusal):
    """The body did not arrive in time."""

    type = "RequestTimeoutException"
    http_status = 408


class ClientGone(ApiRefusal):
    """The client disconnected during its request: the answer is never read."""

    type = "RequestAbortedException"


class TooManyRequests(ApiRefusal):
    """So many requests are being answered that no other is begun."""

    type = "ThrottlingException"
    http_status = 400  # as of AWS; clients wait and try again


class ForeignHost(ApiRefusal):
    """The request comes from a page of another site, or names another host."""

    type = "AccessDeniedException"
    http_status = 403


class MissingSignature(ApiRefusal):
    """The request is not signed, and has to be."""

    type = "MissingAuthenticationTokenException"
    http_status = 403


class IncompleteSignature(ApiRefusal):
    """The request is signed in a way that the protocol does not have."""

    type = "IncompleteSignatureException"


class UnknownKey(ApiRefusal):
    """No key of that id is configured."""

    type = "UnrecognizedClientException"
    http_status = 403


class InvalidSignature(ApiRefusal):
    """The signature is wrong, too old, or was used before."""

    type = "InvalidSignatureException"
    http_status = 403


class ServiceUnavailable(ApiRefusal):
    """Something that the operation needs does not answer."""

    type = "ServiceUnavailable"
    http_status = 503


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
            return ServiceUnavailable(error.message)
        case PackagerError() | _:
            return InternalFailure()

"""Refusals of the SageMaker API, as its clients know them."""

from __future__ import annotations

from packager.core.errors import PackagerError


class ApiRefusal(PackagerError):
    """A request that is refused with a type and a message of the API; the type is its code."""

    exit_code = 2
    type = "ValidationException"
    http_status = 400

    def __init__(
        self, message: str, *, hint: str = "", type: str = "", http_status: int = 0
    ) -> None:
        super().__init__(message, hint=hint, code=type or self.type)
        self.type = type or self.type
        self.http_status = http_status or self.http_status


class ValidationRefused(ApiRefusal):
    """The request's document is wrong; unmodelled by AWS, and what it answers."""


class ResourceNotFound(ApiRefusal):
    """No resource has that name."""

    type = "ResourceNotFound"


class ResourceInUse(ApiRefusal):
    """Something of that name is there already, or is in use."""

    type = "ResourceInUse"


def resource_limit_exceeded(message: str, *, hint: str = "") -> ApiRefusal:
    """Return an error: there are too many."""
    return ApiRefusal(message, hint=hint, type="ResourceLimitExceeded")


def serialization_refused(message: str, *, hint: str = "") -> ApiRefusal:
    """Return an error: a value of the request's document is of another JSON type than the API's."""
    return ApiRefusal(message, hint=hint, type="SerializationException")

"""Refusals of the SageMaker API, as its clients know them."""

from __future__ import annotations

from packager.core.errors import PackagerError


class ApiRefusal(PackagerError):
    """A request that is refused with a type and a message of the API."""

    exit_code = 2
    type = "ValidationException"
    http_status = 400


class ValidationRefused(ApiRefusal):
    """The request's document is wrong; unmodelled by AWS, and what it answers."""


class ResourceNotFound(ApiRefusal):
    """No resource has that name."""

    type = "ResourceNotFound"


class ResourceInUse(ApiRefusal):
    """Something of that name is there already, or is in use."""

    type = "ResourceInUse"


class ResourceLimitExceeded(ApiRefusal):
    """There are too many."""

    type = "ResourceLimitExceeded"


class SerializationRefused(ApiRefusal):
    """A value of the request's document is of another JSON type than the API's."""

    type = "SerializationException"

"""Errors of the runtime protocol: REST and JSON, the type in a header."""

from __future__ import annotations

import json
from typing import Any

from packager.addons.deploy.sagemaker.api_refusals import ApiRefusal
from packager.addons.server.sagemaker.settings import JobSettings
from packager.core.text import escape

LONGEST_TOLD = 1024  # characters of a container's answer in a message
LONGEST_ORIGINAL = 16 * 1024  # of OriginalMessage
_TIMED_OUT = (
    "Your invocation timed out while waiting for a response from container primary. "
    "Review the container's log, resolve the issue, and try again."
)


class InvocationError(ApiRefusal):
    """An invocation that was not answered by the container, or badly; names are AWS's."""

    def __init__(self, message: str, *, type: str, http_status: int = 400, **members: Any) -> None:
        super().__init__(message, type=type, http_status=http_status)
        self.members = members

    def body(self) -> bytes:
        """Return the document that tells it."""
        return json.dumps({"Message": self.message, **self.members}).encode()


def invalid_invocation(message: str) -> InvocationError:
    """Return an error: the request is invalid, or the endpoint does not exist."""
    return InvocationError(message, type="ValidationError")


def invocation_too_large(message: str) -> InvocationError:
    """Return an error: the request's body is larger than SageMaker takes."""
    return InvocationError(message, type="ValidationError", http_status=413)


def no_server(message: str) -> InvocationError:
    """Return an error: no container is ready to take the request."""
    return InvocationError(message, type="ServiceUnavailable", http_status=503)


def log_group(endpoint: str) -> str:
    """Return the log group that SageMaker has for an endpoint."""
    return f"/aws/sagemaker/Endpoints/{endpoint}"


def model_error(settings: JobSettings, endpoint: str, status: int, body: bytes) -> InvocationError:
    """Return the error of a container that answered with another status than 200."""
    text = escape(body.decode(errors="replace")[:LONGEST_ORIGINAL])
    group = log_group(endpoint)
    side = "client" if 400 <= status < 500 else "server"
    message = text[:LONGEST_TOLD]
    return InvocationError(
        f'Received {side} error ({status}) from primary with message "{message}". '
        f"See the log group {group} in account {settings.account} for more information.",
        type="ModelError",
        http_status=424,
        ErrorCode="CLIENT_ERROR_FROM_MODEL" if side == "client" else "INTERNAL_FAILURE_FROM_MODEL",
        LogStreamArn=f"arn:aws:logs:{settings.region}:{settings.account}:log-group:{group}",
        OriginalMessage=text,
        OriginalStatusCode=status,
    )


def timed_out(settings: JobSettings, endpoint: str) -> InvocationError:
    """Return the error of a container that did not answer in time."""
    return model_error(settings, endpoint, 0, _TIMED_OUT.encode())

"""AWS JSON 1.1: the target of a request, its body, answers and errors; no sockets."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from packager.addons.deploy.sagemaker.api_refusals import ApiRefusal
from packager.addons.server.refusals import (
    unknown_operation,
    unreadable_body,
    unsupported_content_type,
)
from packager.core.documents import NotStrict, parse_object

CONTENT_TYPE = "application/x-amz-json-1.1"
_CONTENT_TYPES = (CONTENT_TYPE, "application/x-amz-json-1.0")  # CloudWatch has the older one
MAX_BODY_BYTES = 1024 * 1024  # of an operation; the largest one of the API is some 100 kB
MAX_MESSAGE = 8192  # characters of an error

# Errors of the API's model have this member; those that it lacks are spelled in lower case.
_MODELLED = frozenset({"ResourceInUse", "ResourceNotFound", "ResourceLimitExceeded"})
_PLAIN = frozenset({str, int, float, bool})  # types that are sent as they are
_TARGET = re.compile(r"([A-Za-z0-9_]{1,64})\.([A-Za-z0-9]{1,128})")


@dataclass(frozen=True, slots=True)
class ApiTarget:
    """What `X-Amz-Target` names."""

    service: str  # such as "SageMaker"
    operation: str


def read_target(header: str | None) -> ApiTarget:
    """Read the target of a request; raises `ApiRefusal`."""
    if header is None:
        raise unknown_operation("the request names no operation: it has no X-Amz-Target")
    found = _TARGET.fullmatch(header)
    if found is None:
        raise unknown_operation("the request's X-Amz-Target is not SERVICE.OPERATION")
    return ApiTarget(found[1], found[2])


def check_content_type(header: str | None) -> None:
    """Refuse a Content-Type other than this protocol's JSON.

    A page of another site needs a CORS preflight for this type, which is never answered.
    """
    kind = (header or "").partition(";")[0].strip().lower()
    if kind not in _CONTENT_TYPES:
        raise unsupported_content_type(f"the request's Content-Type is not {CONTENT_TYPE}")


def read_body(body: bytes) -> dict[str, Any]:
    """Read the document of a request; raises `ApiRefusal`."""
    if not body.strip():
        return {}  # as the service takes it
    try:
        document: dict[str, Any] = parse_object(body, max_bytes=MAX_BODY_BYTES)
    except NotStrict as error:
        raise unreadable_body(f"the request's body cannot be read: {error}") from None
    return document


def wire_document(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return an answer in wire format: times as seconds since 1970, without None."""
    return {
        key: value if type(value) in _PLAIN else _wire(value)
        for key, value in answer.items()
        if value is not None
    }


def _wire(value: Any) -> Any:
    if type(value) in _PLAIN:
        return value
    if isinstance(value, datetime):
        return round(value.astimezone(UTC).timestamp(), 3)
    if isinstance(value, dict | Mapping):  # dict is faster to check
        return wire_document(value)
    if isinstance(value, list | tuple):
        return [_wire(one) for one in value]
    return value


def answer_bytes(document: Mapping[str, Any]) -> bytes:
    """Write an answer."""
    return json.dumps(document, separators=(",", ":"), allow_nan=False).encode()


def error_document(refusal: ApiRefusal) -> dict[str, str]:
    """Return the body of an error."""
    message = f"{refusal.message}; {refusal.hint}" if refusal.hint else refusal.message
    member = "Message" if refusal.type in _MODELLED else "message"
    return {"__type": refusal.type, member: message[:MAX_MESSAGE]}

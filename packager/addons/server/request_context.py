"""Context of the request that is being answered."""

from __future__ import annotations

import uuid
from contextvars import ContextVar
from dataclasses import dataclass, field


@dataclass(slots=True)
class RequestContext:
    """A request, for the log and for a second read of its body."""

    id: str
    operation: str = ""  # that it names
    caller: str = ""  # whose key signed it
    body: bytes | None = field(default=None, repr=False)  # once it was read


_asked: ContextVar[RequestContext] = ContextVar("asked")


def begin_request() -> RequestContext:
    """Start the record of the request that this task answers, with a new id."""
    asked = RequestContext(str(uuid.uuid4()))
    _asked.set(asked)
    return asked


def this_request() -> RequestContext:
    """Return the request that this task answers."""
    return _asked.get()


def request_id() -> str:
    """Return the id of the request that is being answered; a new one where it has none."""
    asked = _asked.get(None)
    return asked.id if asked else str(uuid.uuid4())


def answer_headers() -> dict[str, str]:
    """Return headers that every answer has."""
    return {
        "x-amzn-RequestId": request_id(),
        "Cache-Control": "no-store",
        "X-Content-Type-Options": "nosniff",
        "Server": "packager",
    }

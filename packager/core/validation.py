"""Messages for documents that do not match their model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from artifact_cache.printable import escape

if TYPE_CHECKING:
    from pydantic import ValidationError


def first_fault(error: ValidationError, whole: str = "the document") -> str:
    """Describe the first error and its place; `whole` names the place of errors without a field.

    Names of fields are untrusted: they are escaped and cut.
    """
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    where = ".".join(_part(part) for part in first["loc"])
    return f"{where or whole}: {_said(first['msg'])}"


def all_faults(error: ValidationError, whole: str = "the document") -> tuple[str, ...]:
    """Describe everything that is wrong, in the order of the fields, as `first_fault` does.

    A text or number that a field has is quoted; what is inside a field's table may be a secret.
    """
    found = []
    for fault in error.errors(include_url=False, include_context=False):
        where = ".".join(_part(part) for part in fault["loc"]) or whole
        value = fault["input"]
        if len(fault["loc"]) == 1 and isinstance(value, str | int | float):
            where = f"{where} {escape(repr(value)[:60])}"
        found.append(f"{where}: {_said(fault['msg'])}")
    return tuple(found)


def _said(message: str) -> str:
    """Write pydantic's sentence as ours begin; what it quotes stays as it is."""
    own = message.removeprefix("Value error, ")[:300]
    return escape(own[:1].lower() + own[1:])


def _part(part: int | str) -> str:
    text = escape(str(part)[:60])
    return text if len(str(part)) <= 60 else f"{text}…"

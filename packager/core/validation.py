"""What is wrong with a document that does not fit its model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from artifact_cache.printable import escape

if TYPE_CHECKING:
    from pydantic import ValidationError


def first_fault(error: ValidationError, whole: str = "the document") -> str:
    """Describe the first thing that is wrong, and where; `whole` is what no field is to blame for.

    Names of fields may be a stranger's: they are escaped and cut.
    """
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    where = ".".join(_part(part) for part in first["loc"])
    return f"{where or whole}: {escape(first['msg'].lower()[:300])}"


def _part(part: int | str) -> str:
    text = escape(str(part)[:60])
    return text if len(str(part)) <= 60 else f"{text}…"

"""What is wrong with a document that does not fit its model."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic import ValidationError


def first_fault(error: ValidationError, whole: str = "the document") -> str:
    """Say the first thing that is wrong, and where; `whole` is what no field is to blame for."""
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    return f"{where or whole}: {first['msg'].lower()}"

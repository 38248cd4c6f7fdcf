"""Type hints of an engine's classes: what a field may be, and the constraints that stand there."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterator
from typing import Any


def named_kinds(hint: Any) -> Iterator[str]:
    for one in flat(hint):
        origin = typing.get_origin(one) or one
        yield {int: "int", float: "float", bool: "bool", str: "text", dict: "object"}.get(
            origin, ""
        )
        if origin in (list, set, tuple):
            yield "list"


def metadata_of(of_class: Any, field: str) -> tuple[Any, ...]:
    pydantic_fields = getattr(of_class, "__pydantic_fields__", {})
    return tuple(getattr(pydantic_fields.get(field), "metadata", ()))


def flat_metadata(hint: Any) -> Iterator[Any]:
    if typing.get_origin(hint) is typing.Annotated:
        for one in typing.get_args(hint)[1:]:
            yield from getattr(one, "metadata", (one,))
        hint = typing.get_args(hint)[0]
    for one in typing.get_args(hint):
        if typing.get_origin(one) is typing.Annotated:
            yield from flat_metadata(one)


def fields_of(of_class: Any) -> list[str]:
    if dataclasses.is_dataclass(of_class):
        found = [one.name for one in dataclasses.fields(of_class) if one.init]
        # pydantic takes `Field(init=False)` out of what may be given
        own = getattr(of_class, "__pydantic_fields__", {})
        return [one for one in found if getattr(own.get(one), "init", True) is not False]
    return list(getattr(of_class, "model_fields", ()))


def hint_of(of_class: Any, field: str) -> Any:
    try:
        return typing.get_type_hints(of_class, include_extras=True).get(field)
    except Exception:
        own = getattr(of_class, "__pydantic_fields__", {}).get(field)
        return getattr(own, "annotation", None)


def flat(hint: Any) -> Iterator[Any]:
    """Yield the members of unions, without `Annotated`."""
    if typing.get_origin(hint) is typing.Annotated:
        yield from flat(typing.get_args(hint)[0])
    elif "Union" in str(typing.get_origin(hint)):
        for one in typing.get_args(hint):
            yield from flat(one)
    else:
        yield hint


def classes_in(hint: Any) -> Iterator[Any]:
    for one in flat(hint):
        if dataclasses.is_dataclass(one) or hasattr(one, "model_fields"):
            yield one

"""A kind of persisted document: its version, its schema today, and an example of it."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from pydantic import TypeAdapter

from tests.support.frozen_schemas import (
    dump_of_database,
    filled,
    inlined,
    restore_database,
    schema_of_database,
    shape_of,
    without_words,
)
from tests.support.places import ROOT

FROZEN = ROOT / "tests/unit/schemas/frozen"
EXAMPLES = ROOT / "tests/unit/schemas/examples"
NOTHING: Mapping[Any, Any] = MappingProxyType({})
_Value = TypeVar("_Value")


@dataclass(frozen=True, kw_only=True)
class DocumentKind:
    """One kind of document that another version of packager may read."""

    name: str
    version: int | str  # `MODULE.CONSTANT`, or a number that is counted here alone
    writer: str  # module that writes it
    make: Callable[[Path], bytes]  # an example by today's code; the directory is empty
    read: Callable[[bytes, Path], object]  # as packager reads it; raises where it does not
    model: Any = None  # what pydantic reads it with; None: the schema is the example's shape
    place: str = "the version in its row"  # where a version that is a number is raised
    refused: Mapping[int, str] = field(default_factory=dict)  # version → what the refusal says
    part: Callable[[Any], Any] = lambda document: document  # of it that the model is of
    suffix: str = ".json"
    tables: bool = False  # it is a database, and its example SQL

    @cached_property
    def number(self) -> int:
        """Return today's version."""
        if isinstance(self.version, int):
            return self.version
        module, _, name = self.version.rpartition(".")
        return int(str(getattr(importlib.import_module(module), name)).rpartition("/")[2])

    @property
    def frozen(self) -> Path:
        """Return where today's schema is kept."""
        return FROZEN / f"{self.name}-{self.number}.json"

    @property
    def example(self) -> Path:
        """Return where today's example is kept."""
        return EXAMPLES / f"{self.name}-{self.number}{self.suffix}"

    def advice(self, changes: list[str]) -> str:
        """Return what to do about changes of a frozen schema."""
        where = self.place if isinstance(self.version, int) else self.version
        listed = "".join(f"\n  {change}" for change in changes)
        return (
            f"{self.name} of version {self.number} is frozen, and differs now:{listed}\n"
            f"raise {where} to {self.number + 1} and run scripts/freeze-schemas"
        )

    def schema(self, place: Path) -> dict[str, Any]:
        """Return today's schema; `place` is an empty directory."""
        if self.model is not None:
            return dict(without_words(TypeAdapter(self.model).json_schema()))
        data = self.make(place)
        if self.tables:
            restored = place / "restored.sqlite"
            restore_database(data, restored)
            return schema_of_database(restored)
        return shape_of(json.loads(data))


def modelled(
    name: str,
    version: int | str,
    model: Any,
    *,
    writer: str,
    read: Callable[[bytes, Path], object] | None = None,
    write: Callable[[Any], bytes] | None = None,
    changes: Mapping[str, Any] = NOTHING,
    refused: Mapping[int, str] = NOTHING,
) -> DocumentKind:
    """Return a kind that pydantic reads, whose example has every field.

    `changes` are values that a schema does not tell, by their place such as `jobs.0.name`.
    """
    reader: TypeAdapter[Any] = TypeAdapter(model)

    def make(_place: Path) -> bytes:
        document = filled(inlined(reader.json_schema()))
        for way, content in changes.items():
            _put(document, way.split("."), content)
        value = reader.validate_json(json.dumps(document))
        if write is not None:
            return write(value)
        return json.dumps(reader.dump_python(value, mode="json", by_alias=True), indent=1).encode()

    return DocumentKind(
        name=name,
        version=version,
        model=model,
        writer=writer,
        make=make,
        read=read or (lambda data, _place: reader.validate_json(data)),
        refused=refused,
    )


def written(
    name: str,
    writer: str,
    make: Callable[[Path], bytes],
    read: Callable[[bytes, Path], object],
    version: int | str = 1,
    **more: Any,
) -> DocumentKind:
    """Return a kind that a module writes; `version` may name a constant of the module."""
    counted = f"{writer}.{version}" if isinstance(version, str) else version
    return DocumentKind(name=name, version=counted, writer=writer, make=make, read=read, **more)


def database(
    name: str,
    writer: str,
    fill: Callable[[Path], object],
    ask: Callable[[Path], object],
    version: int | str = 1,
    *,
    file: str = "state.sqlite",
) -> DocumentKind:
    """Return a kind that SQLite keeps; `ask` finds what `fill` put into the file."""

    def make(place: Path) -> bytes:
        fill(place / file)
        return dump_of_database(place / file)

    def read(data: bytes, place: Path) -> object:
        restore_database(data, place / file)
        return required(ask(place / file))

    return written(name, writer, make, read, version, suffix=".sql", tables=True)


def required(found: _Value) -> _Value:
    """Return what was found; refuse nothing at all, which is how some readers pass over a file."""
    assert found, "today's code passes it over"
    return found


def in_file(name: str, read: Callable[[Path], object]) -> Callable[[bytes, Path], object]:
    """Return a reader of bytes that puts them into a file of the name first."""

    def reader(data: bytes, place: Path) -> object:
        path = place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return required(read(path))

    return reader


def _put(document: Any, place: list[str], content: Any) -> None:
    first, *rest = place
    key = int(first) if isinstance(document, list) else first
    if rest:
        _put(document[key], rest, content)
    else:
        document[key] = content

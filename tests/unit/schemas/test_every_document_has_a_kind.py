"""What is persisted is in the table: constants of versions, models, tables, writers of JSON."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import json
import re
import typing
from collections.abc import Iterator
from functools import cache
from typing import Any

from pydantic import BaseModel

from tests.support.cases import read_tables
from tests.support.document_kinds import KINDS
from tests.support.places import ROOT

PACKAGES = ("packager", "artifact_cache")
VERSION_NAME = re.compile(r"_?([A-Z]+_)*(SCHEMA|VERSION|PROTOCOL|FORM)")
VERSION_TEXT = re.compile(r"packager\.[a-z-]+/\d+")
MODEL_BASES = re.compile(r"\b(BaseModel|StrictDocument|FigureDocument|KeyPart|KeyDocument)\b")
WRITES_JSON = re.compile(r"\bjson\.dumps\(|\brfc8785\.dumps\(|\b(model_)?dump_json\(")
WRITES_FILES = re.compile(
    r"\b(write_atomically|write_durably|_write_private|put_object)\(|[\"']put_object[\"']"
    r"|\.write(_text|_bytes)?\(|\bos\.p?write\("
)

TABLES = read_tables(__file__)
OTHER_VERSIONS, OTHER_MODELS = TABLES["other_versions"], TABLES["other_models"]
OTHER_WRITERS = TABLES["other_writers"]


@cache
def sources() -> dict[str, str]:
    """Return the text of each module."""
    found = {}
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            found[name.removesuffix(".__init__")] = path.read_text(encoding="utf-8")
    return found


def version_constants() -> Iterator[str]:
    for module, text in sources().items():
        if not VERSION_NAME.search(text):
            continue
        for node in ast.parse(text).body:
            if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
                target = node.targets[0] if isinstance(node, ast.Assign) else node.target
                value = node.value.value if isinstance(node.value, ast.Constant) else None
                is_version = isinstance(value, int) or (
                    isinstance(value, str) and VERSION_TEXT.fullmatch(value)
                )
                if (
                    isinstance(target, ast.Name)
                    and VERSION_NAME.fullmatch(target.id)
                    and is_version
                ):
                    yield f"{module}.{target.id}"


def test_every_constant_of_a_version_is_of_a_kind() -> None:
    named = {kind.version for kind in KINDS if isinstance(kind.version, str)}
    found = set(version_constants())

    assert found - named == set(OTHER_VERSIONS)
    assert named <= found


def models() -> set[type[BaseModel]]:
    """Return each model of the packages that has fields."""
    for module, text in sources().items():
        if MODEL_BASES.search(text):
            importlib.import_module(module)
    found: set[type[BaseModel]] = set()
    waiting: list[type[BaseModel]] = [BaseModel]
    while waiting:
        for heir in waiting.pop().__subclasses__():
            waiting.append(heir)
            if heir.__module__.partition(".")[0] in PACKAGES and heir.model_fields:
                found.add(heir)
    return found


def parts(annotation: Any, seen: set[Any]) -> None:
    """Add each class that a type is made of."""
    if annotation in seen:
        return
    if isinstance(annotation, type):
        seen.add(annotation)
        if issubclass(annotation, BaseModel):
            annotation.model_rebuild()
            for base in annotation.__mro__[1:]:
                if issubclass(base, BaseModel):
                    seen.add(base)
            for field in annotation.model_fields.values():
                parts(field.annotation, seen)
        elif dataclasses.is_dataclass(annotation):
            hints = typing.get_type_hints(annotation)
            for one in dataclasses.fields(annotation):
                parts(hints[one.name], seen)
    for one in typing.get_args(annotation):
        if not isinstance(one, str | int | float):
            parts(one, seen)


def test_every_model_is_part_of_a_kind() -> None:
    covered: set[Any] = set()
    for kind in KINDS:
        parts(kind.model, covered)
    left = {f"{model.__module__}.{model.__qualname__}" for model in models() - covered}

    assert left == set(OTHER_MODELS)


def test_every_table_is_of_a_kind() -> None:
    made = set()
    for text in sources().values():
        made |= set(re.findall(r"CREATE TABLE (?:IF NOT EXISTS )?(\w+)", text))
    frozen = set()
    for kind in KINDS:
        if kind.tables:
            frozen |= set(json.loads(kind.frozen.read_bytes())["sql"])

    assert made
    assert made <= frozen


def test_every_module_that_writes_json_is_of_a_kind() -> None:
    writers = {
        module
        for module, text in sources().items()
        if WRITES_JSON.search(text) and WRITES_FILES.search(text)
    }
    named = {kind.writer for kind in KINDS}

    assert writers - named == set(OTHER_WRITERS)
    assert named - {""} <= set(sources())

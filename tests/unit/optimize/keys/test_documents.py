"""The key changes with every input, and with nothing else."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin

import pytest
from pydantic import BaseModel, Field, ValidationError

from artifact_cache import key
from artifact_cache.key import KeyDocument, KeyPart, key_of, plain
from packager.optimize.keys import documents, parts
from packager.optimize.keys.documents import parse_document
from tests.support.cache_entries import CHECKPOINT, DOCUMENTS, DRAFT, NEURON, TENSORRT, VLLM, A, B
from tests.support.cases import cases_of
from tests.support.places import ROOT

cases = cases_of(__file__)

Place = tuple[str | int, ...]


def leaves(value: object, place: Place = ()) -> Iterator[Place]:
    """Yield the place of every field, down through groups and rows of groups."""
    match value:
        case KeyPart():
            for name in type(value).model_fields:
                yield from leaves(getattr(value, name), (*place, name))
        case tuple() if value and isinstance(value[0], KeyPart):
            yield place  # the row itself can grow
            for index, inner in enumerate(value):
                yield from leaves(inner, (*place, index))
        case _:
            yield place


def at(value: Any, place: Place) -> Any:
    for step in place:
        value = value[step] if isinstance(step, int) else getattr(value, step)
    return value


def put_at(value: Any, place: Place, new: object) -> Any:
    if not place:
        return new
    step, *rest = place
    inner = put_at(at(value, (step,)), tuple(rest), new)
    if isinstance(step, int):
        return (*value[:step], inner, *value[step + 1 :])
    return value.model_copy(update={step: inner})


def flipped(value: object, choices: tuple[object, ...]) -> object:
    """Give another value that the field allows."""
    if choices:
        return next((choice for choice in choices if choice != value), None)
    match value:
        case bool():
            return not value
        case int():
            return value + 1
        case str():
            return B if value == A else A if value == B else f"{value}x"
        case dict():
            of_digests = any(inner in (A, B) for inner in value.values())
            return {**value, "ADDED": A if of_digests else "1"}
        case tuple():
            return value[1:]
        case None:
            return A
    raise AssertionError(f"no other value for {value!r}")


def choices_at(document: KeyDocument, place: Place) -> tuple[object, ...]:
    owner, name = at(document, place[:-1]), place[-1]
    annotation = type(owner).model_fields[name].annotation
    return get_args(annotation) if get_origin(annotation) is Literal else ()


def without_effect(document: KeyDocument) -> list[Place]:
    """Give the fields whose change leaves the key as it was."""
    silent = []
    for place in leaves(document):
        new = flipped(at(document, place), choices_at(document, place))
        if new is not None and key_of(put_at(document, place, new)) == key_of(document):
            silent.append(place)
    return silent


FLIPS = [
    pytest.param(document, place, id=f"{document.kind}/{'/'.join(map(str, place))}")
    for document in DOCUMENTS
    for place in leaves(document)
    if place not in (("kind",), ("schema_version",))
]


@pytest.mark.parametrize(("document", "place"), FLIPS)
def test_flipping_a_field_changes_the_key(document: KeyDocument, place: Place) -> None:
    new = flipped(at(document, place), choices_at(document, place))
    changed = put_at(document, place, new)

    assert parse_document(plain(changed)) is not None  # the flip is a document one can have
    assert key_of(changed) != key_of(document)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.kind)
def test_leaving_out_what_may_be_absent_changes_the_key(document: KeyDocument) -> None:
    for place in leaves(document):
        for depth in range(1, len(place) + 1):
            owner, name = at(document, place[: depth - 1]), place[depth - 1]
            if isinstance(name, str) and NoneType in get_args(
                type(owner).model_fields[name].annotation
            ):
                absent = put_at(document, place[:depth], None)
                assert at(document, place[:depth]) is None or key_of(absent) != key_of(document)


def test_an_under_keyed_document_is_caught() -> None:
    class UnderKeyed(documents.DraftHeadKey):
        tokens: Annotated[int, Field(exclude=True)]  # vllm#53366: the field that was forgotten

    assert without_effect(UnderKeyed(**dict(DRAFT), tokens=5)) == [("tokens",)]


def test_the_samples_reach_every_field_of_every_group() -> None:
    """A group that is None in all samples would be flipped by no test."""
    reached = {
        (type(at(document, place[:-1])), place[-1])
        for document in DOCUMENTS
        for leaf in leaves(document)
        for place in (leaf[: depth + 1] for depth in range(len(leaf)))
        if isinstance(place[-1], str)
    }
    fields = {(model, name) for model in key_models() for name in model.model_fields}
    bases = {KeyPart, KeyDocument, documents.CheckpointKey, documents.CompiledKey}

    assert {(model, name) for model, name in fields if model not in bases} <= reached


@cases("keys_stay_what_they_were")
def test_keys_stay_what_they_were(id: str, digest: str) -> None:
    """A change here empties every cache in the world: bump the schema and mean it."""
    [document] = [one for one in DOCUMENTS if one.kind == id]
    assert key_of(document) == digest


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.kind)
def test_one_text_in_two_unicode_forms_gives_one_key(document: KeyDocument) -> None:
    """Digests and names allow no such text at all; every other field takes either form."""
    for place in leaves(document):
        value = at(document, place)
        forms: list[Any]
        if isinstance(value, str):
            forms = ["caf\u00e9", "cafe\u0301"]
        elif isinstance(value, tuple) and value and isinstance(value[0], str):
            forms = [("caf\u00e9", "cafz"), ("cafe\u0301", "cafz")]
        else:
            continue
        assert len({key_if_allowed(put_at(document, place, form)) for form in forms}) == 1, place


def key_if_allowed(document: KeyDocument) -> str | None:
    try:
        return key_of(parse_document(plain(document)))
    except ValueError:
        return None


def test_no_field_is_a_float_and_no_input_can_be_forgotten() -> None:
    """A default would turn a forgotten input into an equal key."""
    for model in key_models():
        for name, field in model.model_fields.items():
            assert "float" not in str(field.annotation), f"{model.__name__}.{name}"
            assert field.is_required() or name in ("schema_version", "kind"), name


def test_every_field_says_what_it_is_for() -> None:
    files = [module.__file__ for module in (key, parts, documents)]
    documented = {
        (model.name, field.target.id)
        for file in files
        for model in ast.parse(Path(file).read_text()).body
        if isinstance(model, ast.ClassDef)
        for field, text in pairwise(model.body)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant) and text.value.value
    }
    for model in key_models():
        for name in vars(model).get("__annotations__", {}):
            assert (model.__name__, name) in documented, f"{model.__name__}.{name}"


def test_sets_ignore_order_and_sequences_do_not() -> None:
    shape = VLLM.shape
    swapped = {**plain(VLLM), "shape": {**shape.model_dump(), "graph_sizes": [4, 1, 2, 2]}}
    flags = VLLM.invocation.model_copy(update={"compiler_args": ("--auto-cast=none", "-O2")})

    assert key_of(parse_document(swapped)) == key_of(VLLM)
    assert key_of(VLLM.model_copy(update={"invocation": flags})) != key_of(VLLM)


def test_fine_tunes_share_graphs_that_hold_no_weights() -> None:
    assert "weights" not in plain(VLLM)
    assert plain(NEURON.model_copy(update={"weights": None}))["weights"] is None


def test_equal_content_of_two_kinds_has_two_keys() -> None:
    assert key_of(TENSORRT.model_copy(update={"kind": "neuron"})) != key_of(TENSORRT)


@cases("refused")
def test_a_document_is_taken_literally_or_not_at_all(change: str) -> None:
    with pytest.raises(ValueError):
        parse_document({**plain(CHECKPOINT), **json.loads(change)})


def test_a_package_stands_once() -> None:
    package = parts.Package(name="torch", version="2.11.0", digest=None)
    with pytest.raises(ValidationError, match="'torch' stands twice"):
        parts.Toolchain(packages=(package, package), environment={}, image=None, worker=A)


def test_documents_survive_their_plain_form() -> None:
    assert [parse_document(plain(document)) for document in DOCUMENTS] == list(DOCUMENTS)


def key_models() -> list[type[BaseModel]]:
    return [
        model
        for module in (parts, documents)
        for model in vars(module).values()
        if isinstance(model, type) and issubclass(model, KeyPart)
    ]


def test_the_docs_name_every_field() -> None:
    """The specification in prose, and the models, are one list of inputs."""
    page = (ROOT / "docs/keys.md").read_text("utf-8")
    words = set(re.findall(r"[a-z][a-z0-9_]+", page))

    fields = {name for model in key_models() for name in model.model_fields}
    assert fields - {"schema_version"} <= words

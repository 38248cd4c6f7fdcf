"""The keywords of Python's functions are the fields that they become."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import pytest

from packager.addons.bench.load.spec import RequestSpec
from packager.addons.bench.options import BenchOptions
from packager.addons.bench.tune.options import TuneOptions
from packager.api.fields import BenchFields, RequestFields, SentFields, TuneFields
from packager.core.request import BuildRequest

STATED = {"model", "instance", "outputs"}  # arguments of their own
REQUEST = frozenset(BuildRequest.model_fields) - STATED
BENCH = {one.name for owner in (BenchOptions, RequestSpec) for one in fields(owner)}
TUNE = {one.name for one in fields(TuneOptions)}


@pytest.mark.parametrize(
    ("typed", "names"),
    [
        (RequestFields, REQUEST),
        (BenchFields, BENCH),
        (TuneFields, REQUEST | TUNE | set(get_type_hints(SentFields))),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_every_field_is_a_keyword_and_every_keyword_a_field(typed: type, names: set[str]) -> None:
    assert set(get_type_hints(typed)) == names


@pytest.mark.parametrize(
    ("typed", "owners"),
    [
        (RequestFields, (BuildRequest,)),
        (BenchFields, (BenchOptions, RequestSpec)),
        (TuneFields, (BuildRequest, TuneOptions, RequestSpec, BenchOptions)),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_keyword_has_the_type_of_its_field(typed: type, owners: tuple[type, ...]) -> None:
    """None stands for the default everywhere; a size may be a text."""
    real: dict[str, Any] = {}
    for owner in reversed(owners):
        real |= get_type_hints(owner, include_extras=True)
    for name, hint in get_type_hints(typed).items():
        also = {str} if name == "max_layer_size" else set()
        assert kinds(hint) - {type(None)} == (kinds(real[name]) - {type(None)}) | also, name


def kinds(hint: Any) -> set[Any]:
    """Return what a type allows: its plain types, literals, and what its items are."""
    origin = get_origin(hint)
    if origin is Annotated:
        return kinds(get_args(hint)[0])
    if origin in (Union, UnionType):
        return {kind for one in get_args(hint) for kind in kinds(one)}
    if origin is Literal:
        return set(get_args(hint))
    if origin is None:
        return {hint}
    items: Iterable[Any] = (one for one in get_args(hint) if one is not Ellipsis)
    many = "mapping" if len(get_args(hint)) == 2 and ... not in get_args(hint) else "sequence"
    return {(many, frozenset(kind for one in items for kind in kinds(one)))}

"""Which shapes hold which others: an artifact for one serves the other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from artifact_cache import matching
from artifact_cache.key import KeyDocument, plain
from packager.optimize.keys.policy import KIND_POLICY
from tests.support.cache_entries import CHECKPOINT, NEURON, TENSORRT, VLLM
from tests.support.cases import cases
from tests.unit.artifact_cache.test_matching import shaped


def dominates(larger: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    rule = KIND_POLICY.larger.get(wanted["kind"])
    return rule is not None and matching.dominates(larger, wanted, rule)


def changed(document: KeyDocument, changes: Mapping[str, Any], without: str = "") -> dict[str, Any]:
    """Return a document as JSON has it, with another shape."""
    found = plain(document)
    shape = {**found["shape"], **changes, **({without: None} if without else {})}
    assert set(shape) == set(found["shape"])
    return {**found, "shape": shape}


@pytest.mark.parametrize("document", [NEURON, TENSORRT], ids=lambda document: document.kind)
@cases("larger")
def test_a_shape_that_holds_another_wins(document: KeyDocument, changes: dict[str, Any]) -> None:
    assert dominates(changed(document, changes), plain(document))


@cases("other", changes={}, without="")
def test_any_other_shape_does_not(changes: dict[str, Any], without: str) -> None:
    assert not dominates(changed(NEURON, changes, without), plain(NEURON))


def test_whatever_is_not_shape_must_be_equal() -> None:
    larger = plain(shaped(NEURON, max_batch=16))
    for group in larger:
        if group != "shape":
            assert not dominates({**larger, group: "another"}, plain(NEURON)), group


def test_a_shape_of_a_later_schema_is_no_match() -> None:
    larger = plain(shaped(NEURON, max_batch=16))
    larger["shape"]["new_dimension"] = 1

    assert not dominates(larger, plain(NEURON))


def test_kinds_that_look_themselves_up_exactly_have_no_larger_match() -> None:
    assert not dominates(plain(shaped(VLLM, max_batch=16)), plain(VLLM))
    assert not dominates(plain(CHECKPOINT), plain(CHECKPOINT))

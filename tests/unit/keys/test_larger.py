"""Which shapes hold which others: an artifact for one serves the other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from artifact_cache import matching
from artifact_cache.key import KeyDocument, plain
from packager.keys.parts import DynamicDimension
from packager.keys.policy import KIND_POLICY
from tests.support.cache_entries import CHECKPOINT, NEURON, TENSORRT, VLLM
from tests.unit.artifact_cache.test_matching import shaped


def dominates(larger: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    rule = KIND_POLICY.larger.get(wanted["kind"])
    return rule is not None and matching.dominates(larger, wanted, rule)


LARGER = [
    pytest.param({"max_batch": 9}, id="batch"),
    pytest.param({"context_batch": 2}, id="prefill batch"),
    pytest.param({"token_batch": 9}, id="decode batch"),
    pytest.param({"max_input_tokens": 3073}, id="input"),
    pytest.param({"max_total_tokens": 4097}, id="total"),
    pytest.param({"max_batched_tokens": 8193}, id="step"),
    pytest.param({"context_buckets": (2048,)}, id="covering buckets"),
    pytest.param({"graph_sizes": (1, 2, 4, 8)}, id="more graphs"),
    pytest.param(
        {"dynamic": (DynamicDimension(name="batch", minimum=1, optimum=8, maximum=16),)},
        id="wider range",
    ),
]
OTHER = [
    pytest.param({}, id="the same"),
    pytest.param({"max_batch": 7}, id="smaller batch"),
    pytest.param({"max_batch": 16, "max_total_tokens": 4095}, id="larger and smaller"),
    pytest.param({"token_batch": None}, id="not compiled apart"),
    pytest.param({"max_batched_tokens": None}, id="no limit"),
    pytest.param({"context_buckets": (1000,)}, id="short bucket"),
    pytest.param({"token_buckets": ()}, id="no buckets"),
    pytest.param({"prefill_chunk_tokens": 1024}, id="chunk"),
    pytest.param({"beam_width": 2}, id="beams"),
    pytest.param({"block_tokens": 32}, id="blocks"),
    pytest.param({"paged": False}, id="paging"),
    pytest.param({"graph_sizes": (1, 2)}, id="fewer graphs"),
    pytest.param(
        {"dynamic": (DynamicDimension(name="batch", minimum=2, optimum=4, maximum=8),)},
        id="narrower range",
    ),
    pytest.param(
        {"dynamic": (DynamicDimension(name="batch", minimum=1, optimum=4, maximum=7),)},
        id="range that ends earlier",
    ),
    pytest.param({"dynamic": ()}, id="no range"),
]


@pytest.mark.parametrize("document", [NEURON, TENSORRT], ids=lambda document: document.kind)
@pytest.mark.parametrize("changes", LARGER)
def test_a_shape_that_holds_another_wins(document: KeyDocument, changes: dict[str, Any]) -> None:
    assert dominates(plain(shaped(document, **changes)), plain(document))


@pytest.mark.parametrize("changes", OTHER)
def test_any_other_shape_does_not(changes: dict[str, Any]) -> None:
    assert not dominates(plain(shaped(NEURON, **changes)), plain(NEURON))


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

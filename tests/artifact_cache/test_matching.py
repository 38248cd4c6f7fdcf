"""A larger artifact serves a smaller wish: only on request, and never silently."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from artifact_cache.cache import ArtifactCache, open_local
from artifact_cache.explain import Difference
from artifact_cache.key import DynamicDimension, KeyDocument, key_of, plain
from artifact_cache.locks import KeyLocks
from artifact_cache.matching import dominates
from artifact_cache.stores.memory import MemoryStore
from tests.artifact_cache.samples import (
    CHECKPOINT,
    NEURON,
    TENSORRT,
    VLLM,
    Build,
    files_below,
    files_of,
)


def shaped(document: KeyDocument, **changes: Any) -> KeyDocument:
    shape = document.shape.model_copy(update=changes)  # type: ignore[attr-defined]
    return document.model_copy(update={"shape": shape})


@pytest.fixture(params=["local", "memory"])
def either(request: pytest.FixtureRequest, root: Path, tmp_path: Path) -> ArtifactCache:
    """With an index and without one."""
    if request.param == "local":
        return open_local(root)
    return ArtifactCache(MemoryStore(), KeyLocks(tmp_path / "locks"))


def test_without_being_asked_only_the_exact_artifact_will_do(
    either: ArtifactCache, tmp_path: Path
) -> None:
    either.get_or_build(shaped(NEURON, max_batch=16), Build(b"large"), tmp_path / "a")

    assert not either.get_or_build(NEURON, Build(b"own"), tmp_path / "b").hit


def test_a_larger_artifact_is_used_and_its_values_are_reported(
    either: ArtifactCache, tmp_path: Path
) -> None:
    larger = shaped(NEURON, max_batch=16, max_total_tokens=8192)
    either.get_or_build(larger, Build(b"large"), tmp_path / "a")

    build = Build(b"own")
    result = either.get_or_build(NEURON, build, tmp_path / "b", accept_larger=True)

    assert (result.hit, build.runs, result.key) == (True, 0, key_of(larger))
    assert files_below(result.path) == files_of(b"large")
    assert result.match is not None
    assert result.match.effective == (
        Difference("/shape/max_batch", 8, 16),
        Difference("/shape/max_total_tokens", 4096, 8192),
    )
    assert [(notice.code, notice.message) for notice in result.notices] == [
        (
            "larger",
            "an artifact for a larger shape is used: /shape/max_batch 16 (asked for 8),"
            " /shape/max_total_tokens 8192 (asked for 4096)",
        )
    ]


def test_the_exact_artifact_comes_first(either: ArtifactCache, tmp_path: Path) -> None:
    either.get_or_build(shaped(NEURON, max_batch=16), Build(b"large"), tmp_path / "a")
    either.get_or_build(NEURON, Build(b"exact"), tmp_path / "b")

    result = either.get_or_build(NEURON, Build(), tmp_path / "c", accept_larger=True)

    assert (result.hit, result.match) == (True, None)
    assert files_below(result.path) == files_of(b"exact")


def test_the_smallest_waste_is_chosen(either: ArtifactCache, tmp_path: Path) -> None:
    for batch in (64, 16, 32):
        into = tmp_path / str(batch)
        either.get_or_build(shaped(NEURON, max_batch=batch), Build(b"%d" % batch), into)

    match = either.find_larger(NEURON)

    assert match is not None
    assert match.effective == (Difference("/shape/max_batch", 8, 16),)


def test_a_larger_artifact_that_is_broken_is_no_match(root: Path, tmp_path: Path) -> None:
    cache = open_local(root)
    cache.get_or_build(shaped(NEURON, max_batch=16), Build(b"large"), tmp_path / "a")
    for blob in root.glob("cas/*/*/*"):
        blob.unlink()

    result = cache.get_or_build(NEURON, Build(b"own"), tmp_path / "b", accept_larger=True)

    assert (result.hit, result.match) == (False, None)
    assert files_below(result.path) == files_of(b"own")
    assert [notice.code for notice in result.notices] == ["corrupt"]


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
def test_a_shape_that_holds_the_other_dominates(
    document: KeyDocument, changes: dict[str, Any]
) -> None:
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

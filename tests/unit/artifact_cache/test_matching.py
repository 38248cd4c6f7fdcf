"""A larger artifact serves a smaller wish: only on request, and never silently."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from artifact_cache.cache import ArtifactCache
from artifact_cache.explain import Difference
from artifact_cache.key import KeyDocument, key_of
from artifact_cache.locks import KeyLocks
from packager.optimize.keys.policy import KIND_POLICY
from tests.support.cache_entries import NEURON, Build, files_of
from tests.support.cache_opening import LocalStore, open_local
from tests.support.cases import as_type, read_tables
from tests.support.doubles.stores import MemoryStore
from tests.support.known import known
from tests.support.places import files_below

TABLES = read_tables(__file__)


def shaped(document: KeyDocument, **changes: Any) -> KeyDocument:
    shape = document.shape.model_copy(update=changes)  # type: ignore[attr-defined]
    return document.model_copy(update={"shape": shape})


@pytest.fixture(params=["local", "memory"])
def either(request: pytest.FixtureRequest, root: Path, tmp_path: Path) -> ArtifactCache:
    """With an index and without one."""
    if request.param == "local":
        return open_local(root)
    return ArtifactCache(MemoryStore(), KeyLocks(tmp_path / "locks"), kinds=KIND_POLICY)


def test_unasked_only_the_exact_artifact_will_do(either: ArtifactCache, tmp_path: Path) -> None:
    either.get_or_build(shaped(NEURON, max_batch=16), Build(b"large"), tmp_path / "a")

    assert not either.get_or_build(NEURON, Build(b"own"), tmp_path / "b").hit


def test_a_larger_artifact_reports_its_values(either: ArtifactCache, tmp_path: Path) -> None:
    larger = shaped(NEURON, max_batch=16, max_total_tokens=8192)
    either.get_or_build(larger, Build(b"large"), tmp_path / "a")

    build = Build(b"own")
    result = either.get_or_build(NEURON, build, tmp_path / "b", accept_larger=True)

    assert (result.hit, build.runs, result.key) == (True, 0, key_of(larger))
    assert files_below(result.path) == files_of(b"large")
    assert result.match is not None
    expected = as_type(TABLES["differences"], tuple[Difference, ...])
    assert result.match.effective == expected
    assert [[notice.code, notice.message] for notice in result.notices] == TABLES["notices"]


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

    match = known(either.find_larger(NEURON))

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


def test_a_cache_without_a_policy_finds_no_larger_artifact(root: Path, tmp_path: Path) -> None:
    cache = ArtifactCache(LocalStore(root), KeyLocks(root / "locks"))
    cache.get_or_build(shaped(NEURON, max_batch=16), Build(b"large"), tmp_path / "a")

    assert cache.find_larger(NEURON) is None
    assert not cache.get_or_build(NEURON, Build(), tmp_path / "b", accept_larger=True).hit

"""Builds that another machine does and publishes for us."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from artifact_cache import PublishedElsewhere
from artifact_cache.cache import ArtifactCache
from artifact_cache.errors import BuildFailed, NotTaken
from artifact_cache.stats import StatsLog
from tests.support.cache_entries import CHECKPOINT, Build, files_of
from tests.support.cache_opening import open_cache
from tests.support.known import known
from tests.support.places import files_below


@pytest.fixture
def shared(tmp_path: Path) -> str:
    return f"dir:{tmp_path / 'shared'}"


@pytest.fixture
def ours(tmp_path: Path, shared: str) -> ArtifactCache:
    return open_cache(tmp_path / "ours", [shared])


@pytest.fixture
def theirs(tmp_path: Path, shared: str) -> ArtifactCache:
    return open_cache(tmp_path / "theirs", [shared])


Elsewhere = Callable[..., Callable[[Path], None]]


@pytest.fixture
def published_by(tmp_path: Path) -> Elsewhere:
    """Make a build that another machine does and publishes."""

    def by(cache: ArtifactCache, **options: bool) -> Callable[[Path], None]:
        def elsewhere(_: Path) -> None:
            into = tmp_path / "there"
            assert cache.get_or_build(CHECKPOINT, Build(b"far"), into, **options).notices == ()
            raise PublishedElsewhere

        return elsewhere

    return by


def test_what_another_machine_published_for_us_is_taken_and_counts_as_built(
    tmp_path: Path, ours: ArtifactCache, theirs: ArtifactCache, published_by: Elsewhere
) -> None:
    done = ours.get_or_build(CHECKPOINT, published_by(theirs), tmp_path / "here")

    assert (done.hit, done.stored) == (False, True)
    assert files_below(done.path) == files_of(b"far")
    assert done.notices == ()
    assert ours.failure(CHECKPOINT) is None
    assert {one.event for one in StatsLog(tmp_path / "ours/stats.jsonl").totals()} == {"miss"}
    assert ours.get_or_build(CHECKPOINT, Build(b"near"), tmp_path / "again").hit


def test_an_unpublished_entry_is_no_result(tmp_path: Path, ours: ArtifactCache) -> None:
    def lies(_: Path) -> None:
        raise PublishedElsewhere

    with pytest.raises(NotTaken, match="the entry that was published is not there"):
        ours.get_or_build(CHECKPOINT, lies, tmp_path / "here")


def test_a_machine_that_builds_for_the_holder_of_the_lock_does_not_wait_for_it(
    tmp_path: Path, ours: ArtifactCache, shared: str, published_by: Elsewhere
) -> None:
    """Both may have one cache directory: the holder would wait for the builder, for hours."""
    same = open_cache(tmp_path / "ours", [shared], wait_s=5)

    done = ours.get_or_build(CHECKPOINT, published_by(same, locks=False), tmp_path / "here")

    assert files_below(done.path) == files_of(b"far")


def test_a_read_only_cache_takes_what_is_published(
    tmp_path: Path, theirs: ArtifactCache, shared: str, published_by: Elsewhere
) -> None:
    ours = open_cache(tmp_path / "file", [f"ro:{shared}"])
    (tmp_path / "file").write_bytes(b"no directory can be here")
    assert theirs.store.capability().mode == "read-write"

    done = ours.get_or_build(CHECKPOINT, published_by(theirs), tmp_path / "here")

    assert files_below(done.path) == files_of(b"far")


def test_a_failure_elsewhere_is_recorded_as_ours(tmp_path: Path, ours: ArtifactCache) -> None:
    def fails(_: Path) -> None:
        raise BuildFailed("the node ran out of memory", log="last words")

    with pytest.raises(BuildFailed):
        ours.get_or_build(CHECKPOINT, fails, tmp_path / "here")

    failure = known(ours.failure(CHECKPOINT))
    assert failure.log == "last words"

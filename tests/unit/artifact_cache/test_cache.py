"""get-or-build: built once, found again, and never in the way of a build."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from artifact_cache.cache import ArtifactCache
from artifact_cache.entry import Entry
from artifact_cache.errors import BuildLeftNothing, StoreUnavailable, UnusableDirectory
from artifact_cache.explain import Difference
from artifact_cache.key import key_of
from artifact_cache.locks import KeyLocks
from artifact_cache.results import Notice
from artifact_cache.store import Address, Capability, StoredEntry, address_of
from tests.support.cache_entries import (
    CHECKPOINT,
    NEURON,
    NEWER,
    VLLM,
    Build,
    document,
    files_below,
    files_of,
)
from tests.support.cache_opening import LocalStore, open_local
from tests.support.doubles.stores import MemoryStore, ReadOnlyStore


def codes(notices: tuple[Notice, ...]) -> list[str]:
    return [notice.code for notice in notices]


def test_a_build_runs_once_and_is_found_again(cache: ArtifactCache, tmp_path: Path) -> None:
    build = Build()

    first = cache.get_or_build(CHECKPOINT, build, tmp_path / "a")
    second = cache.get_or_build(CHECKPOINT, build, tmp_path / "b")

    assert build.runs == 1
    assert (first.hit, first.stored, second.hit, second.stored) == (False, True, True, True)
    assert first.key == second.key == key_of(CHECKPOINT)
    assert first.entry == second.entry
    assert first.notices == second.notices == ()
    assert files_below(first.path) == files_below(second.path) == files_of(b"tensors")


def test_other_inputs_are_built(cache: ArtifactCache, tmp_path: Path) -> None:
    build = Build()
    cache.get_or_build(document(1), build, tmp_path / "a")
    cache.get_or_build(document(2), build, tmp_path / "b")

    assert build.runs == 2


def test_the_entry_says_who_built_when_and_for_how_long(root: Path, tmp_path: Path) -> None:
    cache = ArtifactCache(
        LocalStore(root),
        KeyLocks(root / "locks"),
        builder_id="ci@org",
        version="0.3.1",
        clock=lambda: 1795000000.9,
    )
    entry = cache.get_or_build(CHECKPOINT, Build(), tmp_path / "a").entry

    assert entry is not None
    assert (entry.writer.builder_id, entry.writer.version) == ("ci@org", "0.3.1")
    assert entry.built_at == 1795000000
    assert 0 <= entry.build_s < 5


def test_files_are_read_only_whether_built_or_found(cache: ArtifactCache, tmp_path: Path) -> None:
    built = cache.get_or_build(CHECKPOINT, Build(), tmp_path / "a")
    found = cache.get_or_build(CHECKPOINT, Build(), tmp_path / "b")

    for result in (built, found):
        assert (result.path / "config.json").stat().st_mode & 0o777 == 0o444
        assert (result.path / "kernel.so").stat().st_mode & 0o777 == 0o555


def test_a_directory_with_something_in_it_is_refused(cache: ArtifactCache, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a/old").touch()

    with pytest.raises(UnusableDirectory, match="it is not empty"):
        cache.get_or_build(CHECKPOINT, Build(), tmp_path / "a")


def test_a_file_where_the_files_should_go_is_refused(cache: ArtifactCache, tmp_path: Path) -> None:
    (tmp_path / "a").touch()

    with pytest.raises(UnusableDirectory, match="file exists"):
        cache.get_or_build(CHECKPOINT, Build(), tmp_path / "a")


def test_a_failed_build_fails_keeps_its_log_and_is_not_remembered(
    cache: ArtifactCache, tmp_path: Path
) -> None:
    def fail(directory: Path) -> None:
        (directory / "compiler.log").write_text("out of memory")
        raise RuntimeError("neuronx-cc: exit 70")

    with pytest.raises(RuntimeError, match="exit 70"):
        cache.get_or_build(CHECKPOINT, fail, tmp_path / "a")

    assert files_below(tmp_path / "a") == {"compiler.log": b"out of memory"}
    assert not cache.get_or_build(CHECKPOINT, Build(), tmp_path / "b").hit


def test_a_build_that_leaves_nothing_has_failed(cache: ArtifactCache, tmp_path: Path) -> None:
    with pytest.raises(BuildLeftNothing, match="without leaving a file"):
        cache.get_or_build(CHECKPOINT, lambda directory: None, tmp_path / "a")


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(lambda path: (path / "link").symlink_to("/etc/passwd"), id="link"),
        pytest.param(lambda path: (path / "cafe\u0301").touch(), id="name that is not NFC"),
        pytest.param(lambda path: (path / "CONFIG.json").touch(), id="names that clash"),
    ],
)
def test_files_no_entry_can_describe_are_used_and_not_kept(
    cache: ArtifactCache, tmp_path: Path, spoil: Callable[[Path], None]
) -> None:
    def build(directory: Path) -> None:
        Build()(directory)
        spoil(directory)

    result = cache.get_or_build(CHECKPOINT, build, tmp_path / "a")

    assert (result.hit, result.stored, codes(result.notices)) == (False, False, ["not-stored"])
    assert (result.path / "config.json").read_bytes() == b"{}"


@pytest.mark.parametrize("find", ["cas/*/*/*", "ac/*/*/*.json"])
def test_damage_is_built_again_and_healed(
    cache: ArtifactCache, root: Path, tmp_path: Path, find: str
) -> None:
    cache.get_or_build(NEURON, Build(), tmp_path / "a")
    for path in root.glob(find):
        path.chmod(0o644)
        path.write_bytes(path.read_bytes()[:-1] + b"?")

    rebuilt = cache.get_or_build(NEURON, Build(), tmp_path / "b")
    found = cache.get_or_build(NEURON, Build(), tmp_path / "c")

    assert (rebuilt.hit, rebuilt.stored, codes(rebuilt.notices)) == (False, True, ["corrupt"])
    assert found.hit
    assert files_below(rebuilt.path) == files_below(found.path) == files_of(b"tensors")


def test_a_lost_blob_leaves_no_half_of_the_files(
    cache: ArtifactCache, root: Path, tmp_path: Path
) -> None:
    cache.get_or_build(NEURON, Build(), tmp_path / "a")
    next(path for path in root.glob("cas/*/*/*") if path.read_bytes() == b"{}").unlink()

    def build(directory: Path) -> None:
        (directory / "only").write_bytes(b"new")

    result = cache.get_or_build(NEURON, build, tmp_path / "b")

    assert files_below(result.path) == {"only": b"new"}


def test_an_entry_only_newer_versions_read_is_left_and_the_build_goes_on(
    cache: ArtifactCache, root: Path, tmp_path: Path
) -> None:
    cache.get_or_build(CHECKPOINT, Build(), tmp_path / "a")
    path = next(root.glob("ac/*/*/*.json"))
    path.chmod(0o644)
    path.write_bytes(NEWER)

    result = cache.get_or_build(CHECKPOINT, Build(), tmp_path / "b")

    assert (result.hit, result.stored) == (False, False)
    assert codes(result.notices) == ["newer", "not-stored"]
    assert files_below(result.path) == files_of(b"tensors")
    assert path.read_bytes() == NEWER


class Broken:
    """A store in which everything fails, the way networks and disks do."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def capability(self) -> Capability:
        return Capability("read-write")

    def get(self, address: Address) -> StoredEntry | None:
        raise self._error

    def put(self, entry: Entry, directory: Path) -> bool:
        raise self._error

    def list(self, kind: str | None = None) -> Iterator[Entry]:
        raise self._error

    def delete(self, address: Address) -> bool:
        raise self._error


@pytest.mark.parametrize(
    "error",
    [OSError(5, "Input/output error"), StoreUnavailable("s3", "503 slow down")],
    ids=["disk", "network"],
)
def test_a_store_in_which_everything_fails_fails_no_build(tmp_path: Path, error: Exception) -> None:
    cache = ArtifactCache(Broken(error), KeyLocks(tmp_path / "locks"))

    result = cache.get_or_build(CHECKPOINT, Build(), tmp_path / "a")

    assert (result.hit, result.stored) == (False, False)
    assert codes(result.notices) == ["store", "not-stored"]
    assert files_below(result.path) == files_of(b"tensors")
    assert cache.find(CHECKPOINT) is None


def test_a_cache_that_cannot_exist_fails_no_build(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    cache = open_local(tmp_path / "file/cache")

    result = cache.get_or_build(CHECKPOINT, Build(), tmp_path / "a")

    assert files_below(result.path) == files_of(b"tensors")
    assert result.notices == (Notice("store", "the cache is off: not a directory"),)


def test_a_read_only_store_gives_hits_and_keeps_nothing(tmp_path: Path) -> None:
    inner = MemoryStore()
    ArtifactCache(inner, KeyLocks(tmp_path / "locks")).get_or_build(
        document(1), Build(), tmp_path / "a"
    )
    reader = ArtifactCache(ReadOnlyStore(inner), KeyLocks(tmp_path / "locks"))

    assert reader.get_or_build(document(1), Build(), tmp_path / "b").hit
    missed = reader.get_or_build(document(2), Build(), tmp_path / "c")
    assert (missed.hit, missed.stored) == (False, False)
    assert len(inner.entries) == 1


def test_whoever_publishes_second_adopts_the_first(tmp_path: Path) -> None:
    """Without a common lock, as on two hosts: both build, one result is used."""
    store = MemoryStore()
    here = ArtifactCache(store, KeyLocks(tmp_path / "locks-here"))
    there = ArtifactCache(store, KeyLocks(tmp_path / "locks-there"))

    def slowly(directory: Path) -> None:
        there.get_or_build(CHECKPOINT, Build(b"theirs"), tmp_path / "there")
        Build(b"ours")(directory)

    result = here.get_or_build(CHECKPOINT, slowly, tmp_path / "here")

    assert (result.hit, result.stored, codes(result.notices)) == (False, True, ["adopted"])
    assert files_below(result.path) == files_of(b"theirs")
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "here",
        "locks-here",
        "locks-there",
        "there",
    ]


def test_files_that_cannot_be_swapped_stay_as_they_were_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And nothing of the other build is left among or beside them."""
    store = MemoryStore()
    here = ArtifactCache(store, KeyLocks(tmp_path / "locks-here"))
    there = ArtifactCache(store, KeyLocks(tmp_path / "locks-there"))
    rename = Path.rename

    def breaks_off(path: Path, target: Path) -> Path:
        theirs = path.parent.name.startswith(".") and not path.parent.name.endswith(".aside")
        if theirs and path.name == "kernel.so" and target.parent == into:
            raise OSError(5, "Input/output error")
        return rename(path, target)

    def slowly(directory: Path) -> None:
        there.get_or_build(CHECKPOINT, Build(b"theirs"), tmp_path / "there")
        Build(b"ours")(directory)
        monkeypatch.setattr(Path, "rename", breaks_off)

    into = tmp_path / "here"
    result = here.get_or_build(CHECKPOINT, slowly, into)

    assert (result.stored, codes(result.notices)) == (False, ["not-stored"])
    assert files_below(into) == files_of(b"ours")
    assert sorted(path.name for path in into.iterdir()) == ["config.json", "kernel.so", "rank0"]


def test_a_damaged_winner_is_not_adopted(tmp_path: Path) -> None:
    store = MemoryStore()
    cache = ArtifactCache(store, KeyLocks(tmp_path / "locks"))

    def overtaken(directory: Path) -> None:
        other = ArtifactCache(store, KeyLocks(tmp_path / "other-locks"))
        other.get_or_build(CHECKPOINT, Build(b"theirs"), tmp_path / "there")
        for sha256 in store.blobs:
            store.blobs[sha256] += b"!"
        Build(b"ours")(directory)

    result = cache.get_or_build(CHECKPOINT, overtaken, tmp_path / "here")

    assert files_below(result.path) == files_of(b"ours")
    assert not result.stored


def test_where_locks_cannot_be_the_build_goes_on(root: Path, tmp_path: Path) -> None:
    (tmp_path / "locks").touch()
    cache = ArtifactCache(LocalStore(root), KeyLocks(tmp_path / "locks"))

    result = cache.get_or_build(CHECKPOINT, Build(), tmp_path / "a")

    assert (result.stored, codes(result.notices)) == (True, ["lock"])


def test_explain_names_the_nearest_entries_and_the_fields(
    cache: ArtifactCache, tmp_path: Path
) -> None:
    far = document(1).model_copy(update={"calibration": None, "sharding": None})
    cache.get_or_build(document(1), Build(), tmp_path / "a")
    cache.get_or_build(far, Build(), tmp_path / "b")
    cache.get_or_build(VLLM, Build(), tmp_path / "c")

    explanation = cache.explain(document(7))

    assert not explanation.hit
    assert [neighbour.entry.key for neighbour in explanation.nearest] == [
        key_of(document(1)),
        key_of(far),
    ]
    assert explanation.nearest[0].differences == (Difference("/calibration/seed", 7, 1),)
    assert [one.pointer for one in explanation.nearest[1].differences] == [
        "/calibration",
        "/sharding",
    ]


def test_explain_says_when_nothing_was_missed(cache: ArtifactCache, tmp_path: Path) -> None:
    cache.get_or_build(document(1), Build(), tmp_path / "a")

    explanation = cache.explain(document(1))

    assert (explanation.hit, explanation.nearest) == (True, ())


def test_find_looks_without_taking(cache: ArtifactCache, tmp_path: Path) -> None:
    assert cache.find(CHECKPOINT) is None
    entry = cache.get_or_build(CHECKPOINT, Build(), tmp_path / "a").entry
    assert cache.find(CHECKPOINT) == entry


def test_swapping_the_document_of_an_entry_makes_it_a_miss(
    cache: ArtifactCache, root: Path, tmp_path: Path
) -> None:
    """A good entry for other inputs, put where ours should be."""
    cache.get_or_build(document(1), Build(), tmp_path / "a")
    theirs = next(root.glob("ac/*/*/*.json"))
    key = address_of(document(2)).key
    ours = root / "ac/quantized-checkpoint" / key[:2] / f"{key}.json"
    ours.parent.mkdir(exist_ok=True)
    theirs.rename(ours)

    result = cache.get_or_build(document(2), Build(b"right"), tmp_path / "b")

    assert codes(result.notices) == ["corrupt"]
    assert files_below(result.path) == files_of(b"right")

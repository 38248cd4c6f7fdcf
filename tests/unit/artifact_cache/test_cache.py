"""get-or-build: built once, found again, and never in the way of a build."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from artifact_cache.cache import ArtifactCache
from artifact_cache.errors import BuildLeftNothing, StoreUnavailable, UnusableDirectory
from artifact_cache.explain import Difference
from artifact_cache.key import key_of
from artifact_cache.locks import KeyLocks
from artifact_cache.results import CacheResult, Notice
from artifact_cache.store import address_of
from tests.support.cache_entries import CHECKPOINT, NEURON, NEWER, VLLM, Build, document, files_of
from tests.support.cache_opening import LocalStore, open_local
from tests.support.cache_stores import FailingStore, damage, the_blob, the_entry
from tests.support.cases import cases
from tests.support.doubles.stores import MemoryStore, ReadOnlyStore
from tests.support.known import known
from tests.support.places import files_below


def codes(notices: tuple[Notice, ...]) -> list[str]:
    return [notice.code for notice in notices]


def test_a_build_runs_once_and_is_found_again(cache: ArtifactCache, tmp_path: Path) -> None:
    build = Build()
    assert cache.find(CHECKPOINT) is None

    first = cache.get_or_build(CHECKPOINT, build, tmp_path / "a")
    second = cache.get_or_build(CHECKPOINT, build, tmp_path / "b")

    assert build.runs == 1
    assert (first.hit, first.stored, second.hit, second.stored) == (False, True, True, True)
    assert first.key == second.key == key_of(CHECKPOINT)
    assert first.entry == second.entry == cache.find(CHECKPOINT)
    assert first.notices == second.notices == ()
    for result in (first, second):
        assert files_below(result.path) == files_of(b"tensors")
        assert (result.path / "config.json").stat().st_mode & 0o777 == 0o444
        assert (result.path / "kernel.so").stat().st_mode & 0o777 == 0o555


def test_the_entry_says_who_built_when_and_for_how_long(root: Path, tmp_path: Path) -> None:
    cache = ArtifactCache(
        LocalStore(root),
        KeyLocks(root / "locks"),
        builder_id="ci@org",
        version="0.3.1",
        clock=lambda: 1795000000.9,
    )
    entry = known(cache.get_or_build(CHECKPOINT, Build(), tmp_path / "a").entry)

    assert (entry.writer.builder_id, entry.writer.version) == ("ci@org", "0.3.1")
    assert entry.built_at == 1795000000
    assert 0 <= entry.build_s < 5


@cases("what_is_no_empty_directory_is_refused")
def test_what_is_no_empty_directory_is_refused(
    cache: ArtifactCache, tmp_path: Path, name: str, reason: str
) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).touch()

    with pytest.raises(UnusableDirectory, match=reason):
        cache.get_or_build(CHECKPOINT, Build(), tmp_path / "a")


def test_a_failed_build_keeps_its_log_and_may_pass(cache: ArtifactCache, tmp_path: Path) -> None:
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


def test_a_lost_blob_leaves_no_half_files(cache: ArtifactCache, root: Path, tmp_path: Path) -> None:
    cache.get_or_build(NEURON, Build(), tmp_path / "a")
    the_blob(root, b"{}").unlink()

    def build(directory: Path) -> None:
        (directory / "only").write_bytes(b"new")

    assert files_below(cache.get_or_build(NEURON, build, tmp_path / "b").path) == {"only": b"new"}


def test_an_entry_only_newer_versions_read_is_left_and_the_build_goes_on(
    cache: ArtifactCache, root: Path, tmp_path: Path
) -> None:
    cache.get_or_build(CHECKPOINT, Build(), tmp_path / "a")
    path = the_entry(root)
    damage(path, NEWER)

    result = cache.get_or_build(CHECKPOINT, Build(), tmp_path / "b")

    assert (result.hit, result.stored) == (False, False)
    assert codes(result.notices) == ["newer", "not-stored"]
    assert files_below(result.path) == files_of(b"tensors")
    assert path.read_bytes() == NEWER


@pytest.mark.parametrize(
    "error",
    [OSError(5, "Input/output error"), StoreUnavailable("s3", "503 slow down")],
    ids=["disk", "network"],
)
def test_a_store_in_which_everything_fails_fails_no_build(tmp_path: Path, error: Exception) -> None:
    cache = ArtifactCache(FailingStore(error), KeyLocks(tmp_path / "locks"))

    result = cache.get_or_build(CHECKPOINT, Build(), tmp_path / "a")

    assert (result.hit, result.stored) == (False, False)
    assert codes(result.notices) == ["store", "not-stored"]
    assert files_below(result.path) == files_of(b"tensors")
    assert cache.find(CHECKPOINT) is None


def test_a_cache_that_cannot_exist_fails_no_build(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    result = open_local(tmp_path / "file/cache").get_or_build(CHECKPOINT, Build(), tmp_path / "a")

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


class TwoHosts:
    """Two hosts that share a store and no lock: `there` publishes while `here` builds."""

    def __init__(self, root: Path) -> None:
        self.root, self.store = root, MemoryStore()
        self.here = ArtifactCache(self.store, KeyLocks(root / "locks-here"))
        self.there = ArtifactCache(self.store, KeyLocks(root / "locks-there"))

    def race(self, then: Callable[[], object] = lambda: None) -> CacheResult:
        def overtaken(directory: Path) -> None:
            self.there.get_or_build(CHECKPOINT, Build(b"theirs"), self.root / "there")
            Build(b"ours")(directory)
            then()

        return self.here.get_or_build(CHECKPOINT, overtaken, self.root / "here")


@pytest.fixture
def hosts(tmp_path: Path) -> TwoHosts:
    return TwoHosts(tmp_path)


def test_whoever_publishes_second_adopts_the_first(hosts: TwoHosts) -> None:
    """Both build, one result is used."""
    result = hosts.race()

    assert (result.hit, result.stored, codes(result.notices)) == (False, True, ["adopted"])
    assert files_below(result.path) == files_of(b"theirs")
    names = sorted(path.name for path in hosts.root.iterdir())
    assert names == ["here", "locks-here", "locks-there", "there"]


def test_files_that_cannot_be_swapped_stay_as_they_were_built(
    hosts: TwoHosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And nothing of the other build is left among or beside them."""
    rename, into = Path.rename, hosts.root / "here"

    def breaks_off(path: Path, target: Path) -> Path:
        theirs = path.parent.name.startswith(".") and not path.parent.name.endswith(".aside")
        if theirs and path.name == "kernel.so" and target.parent == into:
            raise OSError(5, "Input/output error")
        return rename(path, target)

    result = hosts.race(lambda: monkeypatch.setattr(Path, "rename", breaks_off))

    assert (result.stored, codes(result.notices)) == (False, ["not-stored"])
    assert files_below(into) == files_of(b"ours")
    assert sorted(path.name for path in into.iterdir()) == ["config.json", "kernel.so", "rank0"]


def test_a_damaged_winner_is_not_adopted(hosts: TwoHosts) -> None:
    blobs = hosts.store.blobs

    result = hosts.race(lambda: blobs.update({name: data + b"!" for name, data in blobs.items()}))

    assert files_below(result.path) == files_of(b"ours")
    assert not result.stored


def test_where_locks_cannot_be_the_build_goes_on(root: Path, tmp_path: Path) -> None:
    (tmp_path / "locks").touch()
    cache = ArtifactCache(LocalStore(root), KeyLocks(tmp_path / "locks"))

    result = cache.get_or_build(CHECKPOINT, Build(), tmp_path / "a")

    assert (result.stored, codes(result.notices)) == (True, ["lock"])


def test_explain_names_nearest_entries_and_fields(cache: ArtifactCache, tmp_path: Path) -> None:
    far = document(1).model_copy(update={"calibration": None, "sharding": None})
    cache.get_or_build(document(1), Build(), tmp_path / "a")
    alone = cache.explain(document(1))
    cache.get_or_build(far, Build(), tmp_path / "b")
    cache.get_or_build(VLLM, Build(), tmp_path / "c")

    explanation = cache.explain(document(7))

    assert not explanation.hit
    assert (alone.hit, alone.nearest) == (True, ())
    assert [neighbour.entry.key for neighbour in explanation.nearest] == [
        key_of(document(1)),
        key_of(far),
    ]
    assert explanation.nearest[0].differences == (Difference("/calibration/seed", 7, 1),)
    assert [one.pointer for one in explanation.nearest[1].differences] == [
        "/calibration",
        "/sharding",
    ]


def test_swapping_the_document_of_an_entry_makes_it_a_miss(
    cache: ArtifactCache, root: Path, tmp_path: Path
) -> None:
    """A good entry for other inputs, put where ours should be."""
    cache.get_or_build(document(1), Build(), tmp_path / "a")
    theirs = the_entry(root)
    key = address_of(document(2)).key
    ours = root / "ac/quantized-checkpoint" / key[:2] / f"{key}.json"
    ours.parent.mkdir(exist_ok=True)
    theirs.rename(ours)

    result = cache.get_or_build(document(2), Build(b"right"), tmp_path / "b")

    assert codes(result.notices) == ["corrupt"]
    assert files_below(result.path) == files_of(b"right")

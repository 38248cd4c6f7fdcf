"""The cache against a dict, through whatever hypothesis makes happen in between."""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from artifact_cache.cache import ArtifactCache
from artifact_cache.errors import Rejected, RejectedBefore
from artifact_cache.fsck import check
from artifact_cache.gc import GcPolicy, collect
from artifact_cache.index import Index
from artifact_cache.key import key_of
from artifact_cache.locks import KeyLocks
from artifact_cache.negative import EXPIRY_S, Failures
from artifact_cache.pins import Pin, Pins
from artifact_cache.stats import StatsLog
from artifact_cache.store import address_of
from tests.support.cache_entries import Build, document, files_of
from tests.support.cache_opening import LocalStore
from tests.support.doubles.stores import ReadOnlyStore
from tests.support.known import known
from tests.support.places import files_below

SEEDS = st.integers(0, 2)


class CacheMachine(RuleBasedStateMachine):
    """`kept` is what a perfect cache would hold; `spoilt` what damage may have cost.

    `rejected` is since and until when inputs are known to be no good.  `now`
    jumps; the disk's own clock does not.
    """

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp())
        self.root = self.directory / "cache"
        self.now = time.time()
        self.cache = self._open()
        self.kept: dict[int, bytes] = {}
        self.spoilt: set[int] = set()
        self.published: dict[int, set[bytes]] = {}
        self.damaged = False
        self.pinned: set[int] = set()
        self.rejected: dict[int, tuple[float, float]] = {}
        self.runs = 0

    def _open(self) -> ArtifactCache:
        return ArtifactCache(
            LocalStore(self.root),
            KeyLocks(self.root / "locks"),
            failures=Failures(self.root / "neg"),
            stats=StatsLog(self.root / "stats.jsonl"),
            index=Index(self.root),
            clock=lambda: self.now,
        )

    def teardown(self) -> None:
        shutil.rmtree(self.directory)

    @rule(seed=SEEDS)
    def get_or_build(self, seed: int) -> None:
        self.runs += 1
        content = f"run {self.runs}".encode()
        build = Build(content)
        into = self.directory / str(self.runs)

        try:
            result = self.cache.get_or_build(document(seed), build, into)
        except RejectedBefore:
            assert self._is_rejected(seed)
            assert build.runs == 0
            return

        assert result.hit or not self._is_rejected(seed)
        if result.hit:
            assert build.runs == 0
            assert files_below(into) == files_of(self.kept[seed])
        else:
            assert build.runs == 1
            assert seed not in self.kept or seed in self.spoilt
            assert files_below(into) == files_of(content)
            assert result.stored
            self.kept[seed] = content
            self.published.setdefault(seed, set()).add(content)
            self.spoilt.discard(seed)
            self.rejected.pop(seed, None)

    def _is_rejected(self, seed: int) -> bool:
        since, until = self.rejected.get(seed, (0.0, 0.0))
        return int(since) <= self.now < int(until)

    @rule(seed=SEEDS)
    def reject(self, seed: int) -> None:
        """A build whose tool says no; what is there already is still found."""
        self.runs += 1
        before = self._is_rejected(seed)

        def build(directory: Path) -> None:
            raise Rejected("no")

        try:
            result = self.cache.get_or_build(document(seed), build, self.directory / str(self.runs))
        except RejectedBefore:
            assert before
        except Rejected:
            assert not before
            self.rejected[seed] = (self.now, self.now + EXPIRY_S)
        else:
            assert result.hit
            assert files_below(result.path) == files_of(self.kept[seed])

    @rule(seconds=st.sampled_from([-86400, -60, 60, 3600, 86400]))
    def jump(self, seconds: int) -> None:
        """Set the clock that negative entries and collectors go by."""
        self.now += seconds

    @rule(seed=SEEDS)
    def pin(self, seed: int) -> None:
        Pins(LocalStore(self.root)).add(f"p{seed}", Pin(keys=(key_of(document(seed)),)))
        self.pinned.add(seed)

    @rule(seed=SEEDS)
    def unpin(self, seed: int) -> None:
        assert Pins(LocalStore(self.root)).remove(f"p{seed}") == (seed in self.pinned)
        self.pinned.discard(seed)

    @rule(grace_s=st.sampled_from([0, 3600]), size=st.sampled_from([None, 0, 1000]))
    def collect(self, grace_s: int, size: int | None) -> None:
        there = {seed for seed in self.kept if self.cache.find(document(seed))}
        policy = GcPolicy(max_bytes=size, max_age_s=3600, grace_s=grace_s)
        dry = collect(LocalStore(self.root), policy, dry_run=True, clock=lambda: self.now)
        done = collect(LocalStore(self.root), policy, clock=lambda: self.now)

        removed = {row.key for row in done.removed}
        assert removed == {row.key for row in dry.removed}
        for seed in set(self.kept):
            if key_of(document(seed)) in removed:
                assert seed not in self.pinned
                del self.kept[seed]
                self.spoilt.discard(seed)
        for seed in there & self.pinned:
            assert self.cache.find(document(seed)), "a pinned entry was collected"

    @rule()
    def check_all(self) -> None:
        """A full check finds nothing in a cache nobody damaged, and leaves only what is whole."""
        report = check(LocalStore(self.root))
        assert report.sound
        if not self.damaged:
            assert not any(problem.action == "set-aside" for problem in report.problems)
        sure = set() if self.damaged else set(self.kept) - self.spoilt
        self.damaged = False
        for seed in range(3):
            self.kept.pop(seed, None)
            if self.cache.find(document(seed)):
                self.kept[seed] = self._content_of(seed)
        self.spoilt.clear()
        assert sure <= set(self.kept)
        assert report.entries == len(self.kept)

    def _content_of(self, seed: int) -> bytes:
        """Say which of the builds of an entry lies in the store, byte for byte."""
        self.runs += 1
        into = self.directory / str(self.runs)
        into.mkdir()
        known(self.cache.store.get(address_of(document(seed)))).extract(into)
        files = files_below(into)
        return next(one for one in self.published[seed] if files_of(one) == files)

    @rule(seed=SEEDS)
    def explain(self, seed: int) -> None:
        explanation = self.cache.explain(document(seed))
        assert explanation.hit <= (seed in self.kept)
        assert {one.entry.key for one in explanation.nearest} <= {
            key_of(document(other)) for other in self.kept if other != seed
        }

    @rule(seed=SEEDS)
    def read_only(self, seed: int) -> None:
        """A reader gets the right files or builds its own, and keeps nothing."""
        self.runs += 1
        content = f"reader {self.runs}".encode()
        reader = ArtifactCache(ReadOnlyStore(LocalStore(self.root)), KeyLocks(self.root / "locks"))

        result = reader.get_or_build(
            document(seed), Build(content), self.directory / str(self.runs)
        )

        expected = self.kept[seed] if result.hit else content
        assert files_below(result.path) == files_of(expected)

    @rule(seed=SEEDS)
    def another_process_opens_it(self, seed: int) -> None:
        self.cache = self._open()
        assert (self.cache.find(document(seed)) is not None) <= (seed in self.kept)

    @rule(pick=st.integers(0, 50), how=st.sampled_from(["flip", "cut", "delete"]))
    def damage_a_blob(self, pick: int, how: str) -> None:
        self._damage(sorted(self.root.glob("cas/*/*/*")), pick, how)
        self.spoilt |= set(self.kept)  # blobs are shared: any entry may have lost one

    @rule(pick=st.integers(0, 50), how=st.sampled_from(["flip", "cut", "delete"]))
    def damage_an_entry(self, pick: int, how: str) -> None:
        self._damage(sorted(self.root.glob("ac/*/*/*.json")), pick, how)
        self.spoilt |= set(self.kept)

    @rule(seed=SEEDS)
    def delete(self, seed: int) -> None:
        deleted = self.cache.store.delete(address_of(document(seed)))
        assert deleted or seed not in self.kept or seed in self.spoilt
        self.kept.pop(seed, None)
        self.spoilt.discard(seed)

    @invariant()
    def every_listed_entry_was_published(self) -> None:
        listed = {entry.key for entry in self.cache.store.list()}
        assert listed <= {address_of(document(seed)).key for seed in self.kept}

    @invariant()
    def nothing_is_left_in_tmp(self) -> None:
        assert list(self.root.glob("tmp/*")) == []

    @invariant()
    def pins_stay(self) -> None:
        assert set(Pins(LocalStore(self.root)).all()) == {f"p{seed}" for seed in self.pinned}

    def _damage(self, paths: list[Path], pick: int, how: str) -> None:
        if not paths:
            return
        self.damaged = True
        path = paths[pick % len(paths)]
        data = path.read_bytes()
        if how == "delete":
            path.unlink()
            return
        path.chmod(0o644)
        path.write_bytes(data[:-1] if how == "cut" else bytes([data[0] ^ 1]) + data[1:])
        path.chmod(0o444)


TestCacheMachine = CacheMachine.TestCase
TestCacheMachine.settings = settings(
    max_examples=25,
    stateful_step_count=20,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)

"""The cache against a dict, through whatever hypothesis makes happen in between."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from artifact_cache.cache import ArtifactCache, open_local
from artifact_cache.locks import KeyLocks
from artifact_cache.store import address_of
from artifact_cache.stores.local import LocalStore
from artifact_cache.stores.read_only import ReadOnlyStore
from tests.artifact_cache.samples import Build, document, files_below, files_of

SEEDS = st.integers(0, 2)


class CacheMachine(RuleBasedStateMachine):
    """`kept` is what a perfect cache would hold; `spoilt` what damage may have cost."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp())
        self.root = self.directory / "cache"
        self.cache = open_local(self.root)
        self.kept: dict[int, bytes] = {}
        self.spoilt: set[int] = set()
        self.runs = 0

    def teardown(self) -> None:
        shutil.rmtree(self.directory)

    @rule(seed=SEEDS)
    def get_or_build(self, seed: int) -> None:
        self.runs += 1
        content = f"run {self.runs}".encode()
        build = Build(content)
        into = self.directory / str(self.runs)

        result = self.cache.get_or_build(document(seed), build, into)

        if result.hit:
            assert build.runs == 0
            assert files_below(into) == files_of(self.kept[seed])
        else:
            assert build.runs == 1
            assert seed not in self.kept or seed in self.spoilt
            assert files_below(into) == files_of(content)
            assert result.stored
            self.kept[seed] = content
            self.spoilt.discard(seed)

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
        self.cache = open_local(self.root)
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

    def _damage(self, paths: list[Path], pick: int, how: str) -> None:
        if not paths:
            return
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
    stateful_step_count=15,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)

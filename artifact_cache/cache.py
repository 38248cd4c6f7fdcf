"""get-or-build: files from the cache when they are there and right, from the build otherwise.

Two promises, and everything here serves one of them: wrong files are never
handed out, and no fault of the cache fails a build that could succeed.  So the
build writes straight into the caller's directory, and whatever then goes wrong
leaves its files where they are.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from artifact_cache.entry import Entry
from artifact_cache.errors import CacheError
from artifact_cache.explain import Explanation, find_nearest
from artifact_cache.index import Index
from artifact_cache.key import KeyDocument, plain
from artifact_cache.kinds import ASSUME_NOTHING, KindPolicy
from artifact_cache.locks import KeyLocks, Lease
from artifact_cache.lookup import look_up, reason_of
from artifact_cache.matching import Match, find_larger
from artifact_cache.negative import Failure, Failures
from artifact_cache.results import CacheResult, Notice, ignore
from artifact_cache.running import Run, RunServices
from artifact_cache.stats import StatsLog
from artifact_cache.store import Address, CacheStore, address_of
from artifact_cache.stores.local import LocalStore
from artifact_cache.stores.trusted import TrustedStore
from artifact_cache.trust import Signer, Trust

WAIT_S = 2 * 3600.0  # longer than a compile; after it two builders work side by side


class ArtifactCache:
    """Looks artifacts up by their inputs, and builds and keeps what is missing.

    `notify` hears of each notice at once; a wait can be long.
    """

    def __init__(
        self,
        store: CacheStore,
        locks: KeyLocks,
        *,
        kinds: KindPolicy = ASSUME_NOTHING,
        builder_id: str = "",
        version: str = "",
        wait_s: float = WAIT_S,
        notify: Callable[[Notice], None] = ignore,
        clock: Callable[[], float] = time.time,
        trust: Trust | None = None,
        signer: Signer | None = None,
        failures: Failures | None = None,
        stats: StatsLog | None = None,
        index: Index | None = None,
        lease: Lease | None = None,
    ) -> None:
        self.store = TrustedStore(store, trust) if trust else store
        self.failures = failures
        self.stats = stats
        self._kinds = kinds
        self._locks = locks
        self._builder_id = builder_id
        self._version = version
        self._wait_s = wait_s
        self._notify = notify
        self._clock = clock
        self._signer = signer
        self._index = index
        self._lease = lease
        self._heeds_failures = trust is None or not trust.require_signed

    def get_or_build(
        self,
        document: KeyDocument,
        build: Callable[[Path], None],
        into: Path,
        *,
        labels: Mapping[str, str] | None = None,
        accept_larger: bool = False,
        retry_failed: bool = False,
        locks: bool = True,
    ) -> CacheResult:
        """Write the artifact's files to `into`, a new or empty directory of the caller's.

        `build` is called at most once, with `into`.  What it raises goes
        through, and `into` stays as it left it.  A `Rejected` is remembered:
        until it expires the next call raises `RejectedBefore` and builds
        nothing, unless `retry_failed`.  With `accept_larger` an artifact for a
        larger shape will do; the result says so in `match`.

        A `build` that raises `PublishedElsewhere` has had another machine publish the
        entry: its files are taken, and `NotTaken` is raised where they are not there.
        `locks` False is for that machine: whoever asked it holds lock and lease.
        """
        run = Run(self._services(), document, into, dict(labels or {}))
        return run.get_or_build(
            build, accept_larger=accept_larger, retry_failed=retry_failed, locks=locks
        )

    def take(
        self, document: KeyDocument, into: Path, *, accept_larger: bool = False
    ) -> CacheResult:
        """Write the artifact's files to `into` as `get_or_build` does, but build nothing.

        Raises `NotTaken` when it is not there, was lost since it was looked up, or the
        store does not work.
        """
        return Run(self._services(), document, into, {}).take(accept_larger=accept_larger)

    def find(self, document: KeyDocument) -> Entry | None:
        """Return the artifact's entry if it is known, without taking its files. Never raises."""
        found = look_up(self.store, document, ignore)
        return found.entry if found else None

    def find_larger(self, document: KeyDocument) -> Match | None:
        """Return the larger artifact that would do; None without one. Never raises."""
        rule = self._kinds.larger.get(document.kind)
        if rule is None:
            return None
        wanted = plain(document)
        try:
            if self._index is None:
                return find_larger(wanted, self.store.list(document.kind), rule)
            keys = self._index.larger(wanted, rule)
            return find_larger(wanted, self._entries(document.kind, keys), rule)
        except (CacheError, OSError):
            return None

    def failure(self, document: KeyDocument) -> Failure | None:
        """Return the last failed build of these inputs, with its log, until one succeeds."""
        return self.failures.get(address_of(document)) if self.failures else None

    def explain(self, document: KeyDocument, limit: int = 3) -> Explanation:
        """Return what a look-up finds, and the entries that nearly fit."""
        wanted = plain(document)
        faults: list[CacheError | OSError] = []
        stored = look_up(self.store, document, faults.append)
        entries: Iterable[Entry] = ()
        if self._index is None:
            entries = self.store.list(document.kind)
        else:
            with suppress(OSError):
                entries = self._entries(document.kind, self._index.nearest(wanted, limit))
        return Explanation(
            key=address_of(document).key,
            hit=stored is not None,
            nearest=find_nearest(wanted, entries, limit),
            fault=reason_of(faults[0]) if faults else "",
            failure=self.failure(document),
        )

    def _services(self) -> RunServices:
        return RunServices(
            store=self.store,
            locks=self._locks,
            lease=self._lease,
            wait_s=self._wait_s,
            signer=self._signer,
            failures=self.failures,
            heeds_failures=self._heeds_failures,
            stats=self.stats,
            builder_id=self._builder_id,
            version=self._version,
            notify=self._notify,
            clock=self._clock,
            find_larger=self.find_larger,
            failure=self.failure,
        )

    def _entries(self, kind: str, keys: Iterable[str]) -> Iterator[Entry]:
        for key in keys:
            with suppress(CacheError, OSError):
                stored = self.store.get(Address(kind, key))
                if stored is not None:
                    yield stored.entry


def open_local(
    root: Path,
    *,
    kinds: KindPolicy = ASSUME_NOTHING,
    builder_id: str = "",
    version: str = "",
    wait_s: float = WAIT_S,
    notify: Callable[[Notice], None] = ignore,
    trust: Trust | None = None,
    signer: Signer | None = None,
    store: CacheStore | None = None,
    lease: Lease | None = None,
) -> ArtifactCache:
    """Open the cache below `root`, or `store`, of which it is the nearest part.

    Ask `store.capability()` and show what it says.
    """
    return ArtifactCache(
        store or local_store(root, trust, kinds=kinds),
        KeyLocks(root / "locks"),
        kinds=kinds,
        builder_id=builder_id,
        version=version,
        wait_s=wait_s,
        notify=notify,
        trust=trust,
        signer=signer,
        failures=Failures(root / "neg"),
        stats=StatsLog(root / "stats.jsonl"),
        index=Index(root),
        lease=lease,
    )


def local_store(
    root: Path, trust: Trust | None, *, kinds: KindPolicy, always_hash: bool = False
) -> LocalStore:
    """Describe the store below `root`; where signatures are required no stamp is believed.

    A signature vouches for digests, and a stamp lies unsigned beside the blob it is about.
    """
    signed = trust is not None and trust.require_signed
    return LocalStore(root, kinds=kinds, always_hash=always_hash or signed)

"""get-or-build: files from the cache when they are there and right, from the build otherwise.

Two promises, and everything here serves one of them: wrong files are never
handed out, and no fault of the cache fails a build that could succeed.  So the
build writes straight into the caller's directory, and whatever then goes wrong
leaves its files where they are.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from artifact_cache.entry import Entry, Writer
from artifact_cache.errors import (
    CacheError,
    Corrupt,
    NotTaken,
    PublishedElsewhere,
    Unpublishable,
    UnusableDirectory,
)
from artifact_cache.explain import Explanation, find_nearest
from artifact_cache.files import (
    clear,
    describe,
    make_empty,
    remove_tree,
    replace_contents,
    said,
    seal,
)
from artifact_cache.index import Index
from artifact_cache.key import KeyDocument, plain
from artifact_cache.locks import KeyLocks, Lease
from artifact_cache.matching import Match, find_larger
from artifact_cache.negative import Failure, Failures
from artifact_cache.stats import Event, StatsLog, event_of
from artifact_cache.store import Address, CacheStore, StoredEntry, address_of
from artifact_cache.stores.local import LocalStore
from artifact_cache.stores.trusted import TrustedStore
from artifact_cache.trust import Signer, Trust

WAIT_S = 2 * 3600.0  # longer than a compile; after it two builders work side by side
# A lock goes with its holder; a lease goes on for as long as somebody rewrites it.
LEASE_WAIT_S = 3600.0


NoticeCode = Literal[
    "waiting",  # another process builds the same
    "lock",  # there was no lock, so the work may be done twice
    "store",  # the store does not work, or not fully
    "corrupt",  # something broken was set aside
    "newer",  # an entry only newer versions can read
    "refused",  # an entry nobody we trust vouches for
    "larger",  # an artifact for a larger shape is used; its values are effective
    "not-stored",  # the files are good, and were not kept
    "adopted",  # another build was published first, and its files are used
]


@dataclass(frozen=True, slots=True)
class Notice:
    """Something people should know; the build went on."""

    code: NoticeCode
    message: str


_NOTICE_OF: Mapping[Event, NoticeCode] = {
    "integrity": "corrupt",
    "policy": "refused",
    "newer": "newer",
    "transport": "store",
}


def _ignore(_: object) -> None:
    """Listen to nobody."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheResult:
    """Finished files, read-only, below `path`."""

    path: Path
    key: str  # of what was asked for, or of the larger one in `match`
    hit: bool  # nothing was built here
    stored: bool  # the next look-up will find exactly these files
    entry: Entry | None  # None when the files are not in the cache
    notices: tuple[Notice, ...]
    match: Match | None = None  # not None: `match.effective` must go into the configuration


class ArtifactCache:
    """Looks artifacts up by their inputs, and builds and keeps what is missing.

    `notify` hears of each notice at once; a wait can be long.
    """

    def __init__(
        self,
        store: CacheStore,
        locks: KeyLocks,
        *,
        builder_id: str = "",
        version: str = "",
        wait_s: float = WAIT_S,
        notify: Callable[[Notice], None] = _ignore,
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
        """Have the artifact's files in `into`, a new or empty directory of the caller's.

        `build` is called at most once, with `into`.  What it raises goes
        through, and `into` stays as it left it.  A `Rejected` is remembered:
        until it expires the next call raises `RejectedBefore` and builds
        nothing, unless `retry_failed`.  With `accept_larger` an artifact for a
        larger shape will do; the result says so in `match`.

        A `build` that raises `PublishedElsewhere` has had another machine publish the
        entry: its files are taken, and `NotTaken` is raised where they are not there.
        `locks` False is for that machine: whoever asked it holds lock and lease.
        """
        run = _Run(self, document, into, dict(labels or {}))
        return run.get_or_build(
            build, accept_larger=accept_larger, retry_failed=retry_failed, locks=locks
        )

    def take(
        self, document: KeyDocument, into: Path, *, accept_larger: bool = False
    ) -> CacheResult:
        """Put the artifact's files into `into` as `get_or_build` does, but build nothing.

        Raises `NotTaken` when it is not there, was lost since it was looked up, or the
        store does not work.
        """
        return _Run(self, document, into, {}).take(accept_larger=accept_larger)

    def find(self, document: KeyDocument) -> Entry | None:
        """Say whether the artifact is known, without taking its files. Never raises."""
        found = _find(self.store, document, _ignore)
        return found.entry if found else None

    def find_larger(self, document: KeyDocument) -> Match | None:
        """Say which artifact for a larger shape would do. Never raises."""
        wanted = plain(document)
        try:
            if self._index is None:
                return find_larger(wanted, self.store.list(document.kind))
            return find_larger(wanted, self._entries(document.kind, self._index.larger(wanted)))
        except (CacheError, OSError):
            return None

    def failure(self, document: KeyDocument) -> Failure | None:
        """Give the last failed build of these inputs, with its log, until one succeeds."""
        return self.failures.get(address_of(document)) if self.failures else None

    def explain(self, document: KeyDocument, limit: int = 3) -> Explanation:
        """Say what a look-up finds, and the entries that nearly fit."""
        wanted = plain(document)
        faults: list[CacheError | OSError] = []
        stored = _find(self.store, document, faults.append)
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
            fault=_said(faults[0]) if faults else "",
            failure=self.failure(document),
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
    builder_id: str = "",
    version: str = "",
    wait_s: float = WAIT_S,
    notify: Callable[[Notice], None] = _ignore,
    trust: Trust | None = None,
    signer: Signer | None = None,
    store: CacheStore | None = None,
    lease: Lease | None = None,
) -> ArtifactCache:
    """Open the cache below `root`, or `store`, of which it is the nearest part.

    Ask `store.capability()` and show what it says.
    """
    return ArtifactCache(
        store or local_store(root, trust),
        KeyLocks(root / "locks"),
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


def local_store(root: Path, trust: Trust | None, *, always_hash: bool = False) -> LocalStore:
    """Describe the store below `root`; where signatures are required no stamp is believed.

    A signature vouches for digests, and a stamp lies unsigned beside the blob it is about.
    """
    signed = trust is not None and trust.require_signed
    return LocalStore(root, always_hash=always_hash or signed)


class _Run:
    """One get-or-build: what it wants, where it goes, and what it noticed."""

    def __init__(
        self, cache: ArtifactCache, document: KeyDocument, into: Path, labels: dict[str, str]
    ) -> None:
        self.cache = cache
        self.document = document
        self.into = into
        self.labels = labels
        self.address = address_of(document)
        self.notices: list[Notice] = []
        self._files: tuple[tuple[str, Path], ...] = ()
        self._built_at = 0
        self._build_s = 0.0
        self._remembers = False

    def get_or_build(
        self,
        build: Callable[[Path], None],
        *,
        accept_larger: bool,
        retry_failed: bool,
        locks: bool,
    ) -> CacheResult:
        make_empty(self.into)
        capability = self.cache.store.capability()
        if capability.mode != "read-write" or capability.reason:
            self._notice("store", f"the cache is {capability.mode}: {capability.reason}")
        if capability.mode == "off":
            return self._without_store(build)
        self._remembers = capability.mode == "read-write"
        if hit := self._take() or (self._take_larger() if accept_larger else None):
            return hit
        if not retry_failed:
            self._refuse_rejected()
        if capability.mode == "read-only":  # nobody could see the result: do not make them wait
            return self._without_store(build)
        with self._single_flight() if locks else nullcontext(False) as waited:
            if hit := self._take():
                return hit
            if waited and not retry_failed:  # whoever we waited for may have been rejected
                self._refuse_rejected()
            return self._build_and_publish(build)

    def take(self, *, accept_larger: bool) -> CacheResult:
        make_empty(self.into)
        capability = self.cache.store.capability()
        if capability.mode == "off":
            raise NotTaken(f"the cache is off: {capability.reason}")
        self._remembers = capability.mode == "read-write"
        if hit := self._take() or (self._take_larger() if accept_larger else None):
            return hit
        self._count("miss")
        said = "; ".join(notice.message for notice in self.notices)
        raise NotTaken(said or "it is not there")

    def _take(self) -> CacheResult | None:
        """Take the files from the store; None, with `into` empty again, if that did not work."""
        stored = _find(self.cache.store, self.document, self._found_broken)
        if stored is None or not self._extract(stored, self.into):
            return None
        self._count_hit("hit", stored)
        return self._result(stored.entry, hit=True)

    def _take_larger(self) -> CacheResult | None:
        match = self.cache.find_larger(self.document)
        if match is None:
            return None
        try:
            stored = self.cache.store.get(Address(self.address.kind, match.entry.key))
        except (CacheError, OSError) as error:
            self._found_broken(error)
            return None
        if stored is None or stored.entry != match.entry or not self._extract(stored, self.into):
            return None
        values = ", ".join(
            f"{one.pointer} {one.found} (asked for {one.wanted})" for one in match.effective
        )
        self._notice("larger", f"an artifact for a larger shape is used: {values}")
        self._count_hit("larger", stored)
        self._count_hit("hit", stored)
        return self._result(stored.entry, hit=True, match=match)

    def _refuse_rejected(self) -> None:
        """Raise `RejectedBefore` while a rejection of these inputs stands."""
        if not self.cache._heeds_failures:
            return
        failure = self.cache.failure(self.document)
        if failure is not None and failure.stands(self.cache._clock()):
            self._count("negative")
            raise failure.error()

    def _extract(self, stored: StoredEntry, into: Path) -> bool:
        try:
            stored.extract(into)
        except (CacheError, OSError) as error:
            self._found_broken(error)
            clear(into)
            return False
        return True

    def _without_store(self, build: Callable[[Path], None]) -> CacheResult:
        try:
            self._build(build)
        except PublishedElsewhere:
            return self._take_published()
        return self._result(None, hit=False)

    def _build_and_publish(self, build: Callable[[Path], None]) -> CacheResult:
        try:
            self._build(build)
        except PublishedElsewhere:
            return self._take_published()
        entry = self._publish() if self._files else None
        return self._result(entry, hit=False)

    def _take_published(self) -> CacheResult:
        """Read the entry that another machine built for us and published."""
        stored = _find(self.cache.store, self.document, self._found_broken)
        if stored is None or not self._extract(stored, self.into):
            said = "; ".join(notice.message for notice in self.notices)
            raise NotTaken(said or "the entry that was published is not there")
        if self._remembers and self.cache.failures:
            self.cache.failures.forget(self.address)
        return self._result(stored.entry, hit=False)

    def _build(self, build: Callable[[Path], None]) -> None:
        self._count("miss")
        started = time.monotonic()
        try:
            build(self.into)
            self._build_s = round(time.monotonic() - started, 3)
            self._built_at = int(self.cache._clock())  # everything was written by now
            self._files = self._sealed()
        except PublishedElsewhere:
            raise
        except Exception as error:
            self._count("failed", seconds=time.monotonic() - started)
            if self._remembers and self.cache.failures:
                self.cache.failures.record(self.address, error, self.cache._clock())
            raise
        self._count("built", seconds=self._build_s)
        if self._remembers and self.cache.failures:
            self.cache.failures.forget(self.address)

    def _sealed(self) -> tuple[tuple[str, Path], ...]:
        try:
            return seal(self.into, self.address.kind)
        except (Unpublishable, OSError) as error:
            self._notice("not-stored", _said(error))
            return ()

    def _publish(self) -> Entry | None:
        """Keep what was built; if that does not work it is still what was asked for."""
        try:
            entry = self._describe()
            published = self.cache.store.put(entry, self.into)
        except (CacheError, OSError) as error:
            self._notice("not-stored", _said(error))
            return None
        if not published:
            return self._adopt()
        self._count("stored", size=entry.total_bytes)
        return entry

    def _describe(self) -> Entry:
        try:
            entry = Entry(
                key=self.address.key,
                keydoc=plain(self.document),
                outputs=describe(self._files),
                writer=Writer(
                    nonce=secrets.token_hex(16),
                    builder_id=self.cache._builder_id,
                    version=self.cache._version,
                ),
                built_at=self._built_at,
                build_s=self._build_s,
                labels=self.labels,
            )
        except ValueError as error:
            raise Unpublishable(str(error)) from error
        return self.cache._signer.sign(entry) if self.cache._signer else entry

    def _adopt(self) -> Entry | None:
        """Use the files of whoever published first: compilers repeat themselves only nearly,
        and two hosts must not serve a mix.
        """
        winner = _find(self.cache.store, self.document, self._found_broken)
        if winner is None:
            self._notice("not-stored", "another entry is there and cannot be used")
            return None
        theirs = self.into / f".{secrets.token_hex(8)}"  # inside: a kill leaves nothing elsewhere
        try:
            theirs.mkdir()
            if not self._extract(winner, theirs):
                return None
            replace_contents(self.into, theirs)
        except UnusableDirectory:
            raise
        except (CacheError, OSError) as error:
            self._notice("not-stored", f"another entry is there; {_said(error)}")
            return None
        finally:
            remove_tree(theirs)
        self._notice("adopted", "another build was published first; its files are used")
        return winner.entry

    @contextmanager
    def _single_flight(self) -> Iterator[bool]:
        """Let one process build, as far as there are locks; say whether another one did before."""
        with ExitStack() as stack:
            try:
                hold = self.cache._locks.hold(self.address.key, self.cache._wait_s, self._waiting)
                if not stack.enter_context(hold):
                    self._notice("lock", "waited long enough for another build; building too")
            except OSError as error:
                self._notice("lock", f"no lock, so the work may be done twice: {_said(error)}")
            if self.cache._lease:  # last: processes of this machine wait at the lock
                held = stack.enter_context(self._leased(self.cache._lease))
                if not held and self._has_waited and not self._is_published():
                    self._notice("lock", "waited long enough for another machine; building too")
            yield self._has_waited

    @property
    def _has_waited(self) -> bool:
        return any(notice.code == "waiting" for notice in self.notices)

    def _leased(self, lease: Lease) -> AbstractContextManager[bool]:
        wait_s = min(self.cache._wait_s, LEASE_WAIT_S)
        return lease.hold(self.address, wait_s, self._waiting, self._is_published)

    def _is_published(self) -> bool:
        return _find(self.cache.store, self.document, _ignore) is not None

    def _waiting(self, holder: str) -> None:
        self._notice("waiting", f"{holder} is building the same {self.address.kind}")

    def _found_broken(self, error: CacheError | OSError) -> None:
        event = event_of(error)
        self._count(event, tier=error.tier if isinstance(error, CacheError) else "")
        self._notice(_NOTICE_OF[event], _said(error))

    def _count_hit(self, event: Event, stored: StoredEntry) -> None:
        entry = stored.entry
        self._count(event, tier=stored.tier, size=entry.total_bytes, seconds=entry.build_s)

    def _count(self, event: Event, *, tier: str = "", size: int = 0, seconds: float = 0.0) -> None:
        if self._remembers and self.cache.stats:
            kind = self.address.kind
            self.cache.stats.count(event, tier=tier or "all", kind=kind, size=size, seconds=seconds)

    def _notice(self, code: NoticeCode, message: str) -> None:
        notice = Notice(code, message)
        if notice not in self.notices:
            self.notices.append(notice)
            self.cache._notify(notice)

    def _result(self, entry: Entry | None, *, hit: bool, match: Match | None = None) -> CacheResult:
        return CacheResult(
            path=self.into,
            key=match.entry.key if match else self.address.key,
            hit=hit,
            stored=entry is not None,
            entry=entry,
            notices=tuple(self.notices),
            match=match,
        )


def _find(
    store: CacheStore, document: KeyDocument, on_fault: Callable[[CacheError | OSError], None]
) -> StoredEntry | None:
    address = address_of(document)
    try:
        stored = store.get(address)
        if stored is not None and stored.entry.keydoc != plain(document):
            raise Corrupt(f"entry {address.key[:12]}", "is for other inputs")
    except (CacheError, OSError) as error:
        on_fault(error)
        return None
    return stored


def _said(error: CacheError | OSError) -> str:
    if isinstance(error, CacheError):
        return error.message
    return said(error)

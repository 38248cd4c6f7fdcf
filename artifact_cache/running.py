"""One run of get-or-build: look up, or wait for another builder, or build and publish."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from artifact_cache.entry import Entry, Writer
from artifact_cache.errors import (
    CacheError,
    NotTaken,
    PublishedElsewhere,
    Unpublishable,
    UnusableDirectory,
)
from artifact_cache.files import clear, describe, make_empty, remove_tree, replace_contents, seal
from artifact_cache.key import KeyDocument, plain
from artifact_cache.locks import KeyLocks, Lease
from artifact_cache.lookup import look_up, reason_of
from artifact_cache.matching import Match
from artifact_cache.negative import Failure, Failures
from artifact_cache.results import CacheResult, Notice, NoticeCode, ignore
from artifact_cache.stats import Event, StatsLog, event_of
from artifact_cache.store import Address, CacheStore, StoredEntry, address_of
from artifact_cache.trust import Signer

# A lock goes with its holder; a lease goes on for as long as somebody rewrites it.
LEASE_WAIT_S = 3600.0

_NOTICE_OF: Mapping[Event, NoticeCode] = {
    "integrity": "corrupt",
    "policy": "refused",
    "newer": "newer",
    "transport": "store",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunServices:
    """Services of the cache that a run uses."""

    store: CacheStore
    locks: KeyLocks
    lease: Lease | None
    wait_s: float
    signer: Signer | None
    failures: Failures | None
    heeds_failures: bool
    stats: StatsLog | None
    builder_id: str
    version: str
    notify: Callable[[Notice], None]
    clock: Callable[[], float]
    find_larger: Callable[[KeyDocument], Match | None]
    failure: Callable[[KeyDocument], Failure | None]


class Run:
    """One get-or-build: what it wants, where it goes, and what it noticed."""

    def __init__(
        self, services: RunServices, document: KeyDocument, into: Path, labels: dict[str, str]
    ) -> None:
        self.services = services
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
        capability = self.services.store.capability()
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
        capability = self.services.store.capability()
        if capability.mode == "off":
            raise NotTaken(f"the cache is off: {capability.reason}")
        self._remembers = capability.mode == "read-write"
        if hit := self._take() or (self._take_larger() if accept_larger else None):
            return hit
        self._count("miss")
        said = "; ".join(notice.message for notice in self.notices)
        raise NotTaken(said or "it is not there")

    def _take(self) -> CacheResult | None:
        """Extract the files from the store; None, with `into` empty again, if that did not work."""
        stored = look_up(self.services.store, self.document, self._found_broken)
        if stored is None or not self._extract(stored, self.into):
            return None
        self._count_hit("hit", stored)
        return self._result(stored.entry, hit=True)

    def _take_larger(self) -> CacheResult | None:
        match = self.services.find_larger(self.document)
        if match is None:
            return None
        try:
            stored = self.services.store.get(Address(self.address.kind, match.entry.key))
        except (CacheError, OSError) as error:
            self._found_broken(error)
            return None
        if stored is None or stored.entry != match.entry or not self._extract(stored, self.into):
            return None
        values = ", ".join(
            f"{one.pointer} {one.found} (requested {one.wanted})" for one in match.effective
        )
        self._notice("larger", f"an artifact for a larger shape is used: {values}")
        self._count_hit("larger", stored)
        self._count_hit("hit", stored)
        return self._result(stored.entry, hit=True, match=match)

    def _refuse_rejected(self) -> None:
        """Raise `RejectedBefore` while a rejection of these inputs stands."""
        if not self.services.heeds_failures:
            return
        failure = self.services.failure(self.document)
        if failure is not None and failure.stands(self.services.clock()):
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
        stored = look_up(self.services.store, self.document, self._found_broken)
        if stored is None or not self._extract(stored, self.into):
            said = "; ".join(notice.message for notice in self.notices)
            raise NotTaken(said or "the entry that was published is not there")
        if self._remembers and self.services.failures:
            self.services.failures.forget(self.address)
        return self._result(stored.entry, hit=False)

    def _build(self, build: Callable[[Path], None]) -> None:
        self._count("miss")
        started = time.monotonic()
        try:
            build(self.into)
            self._build_s = round(time.monotonic() - started, 3)
            self._built_at = int(self.services.clock())  # everything was written by now
            self._files = self._sealed()
        except PublishedElsewhere:
            raise
        except Exception as error:
            self._count("failed", seconds=time.monotonic() - started)
            if self._remembers and self.services.failures:
                self.services.failures.record(self.address, error, self.services.clock())
            raise
        self._count("built", seconds=self._build_s)
        if self._remembers and self.services.failures:
            self.services.failures.forget(self.address)

    def _sealed(self) -> tuple[tuple[str, Path], ...]:
        try:
            return seal(self.into, self.address.kind)
        except (Unpublishable, OSError) as error:
            self._notice("not-stored", reason_of(error))
            return ()

    def _publish(self) -> Entry | None:
        """Publish what was built; on failure the build's files are still returned."""
        try:
            entry = self._describe()
            published = self.services.store.put(entry, self.into)
        except (CacheError, OSError) as error:
            self._notice("not-stored", reason_of(error))
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
                    builder_id=self.services.builder_id,
                    version=self.services.version,
                ),
                built_at=self._built_at,
                build_s=self._build_s,
                labels=self.labels,
            )
        except ValueError as error:
            raise Unpublishable(str(error)) from error
        return self.services.signer.sign(entry) if self.services.signer else entry

    def _adopt(self) -> Entry | None:
        """Use the files of whoever published first: compilers repeat themselves only nearly,
        and two hosts must not serve a mix.
        """
        winner = look_up(self.services.store, self.document, self._found_broken)
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
            self._notice("not-stored", f"another entry is there; {reason_of(error)}")
            return None
        finally:
            remove_tree(theirs)
        self._notice("adopted", "another build was published first; its files are used")
        return winner.entry

    @contextmanager
    def _single_flight(self) -> Iterator[bool]:
        """Acquire the key's lock where locks work; yield whether another process built before."""
        with ExitStack() as stack:
            try:
                hold = self.services.locks.hold(
                    self.address.key, self.services.wait_s, self._waiting
                )
                if not stack.enter_context(hold):
                    self._notice("lock", "waited long enough for another build; building too")
            except OSError as error:
                self._notice("lock", f"no lock, so the work may be done twice: {reason_of(error)}")
            if self.services.lease:  # last: processes of this machine wait at the lock
                held = stack.enter_context(self._leased(self.services.lease))
                if not held and self._has_waited and not self._is_published():
                    self._notice("lock", "waited long enough for another machine; building too")
            yield self._has_waited

    @property
    def _has_waited(self) -> bool:
        return any(notice.code == "waiting" for notice in self.notices)

    def _leased(self, lease: Lease) -> AbstractContextManager[bool]:
        wait_s = min(self.services.wait_s, LEASE_WAIT_S)
        return lease.hold(self.address, wait_s, self._waiting, self._is_published)

    def _is_published(self) -> bool:
        return look_up(self.services.store, self.document, ignore) is not None

    def _waiting(self, holder: str) -> None:
        self._notice("waiting", f"{holder} is building the same {self.address.kind}")

    def _found_broken(self, error: CacheError | OSError) -> None:
        event = event_of(error)
        self._count(event, tier=error.tier if isinstance(error, CacheError) else "")
        self._notice(_NOTICE_OF[event], reason_of(error))

    def _count_hit(self, event: Event, stored: StoredEntry) -> None:
        entry = stored.entry
        self._count(event, tier=stored.tier, size=entry.total_bytes, seconds=entry.build_s)

    def _count(self, event: Event, *, tier: str = "", size: int = 0, seconds: float = 0.0) -> None:
        if self._remembers and self.services.stats:
            kind = self.address.kind
            self.services.stats.count(
                event, tier=tier or "all", kind=kind, size=size, seconds=seconds
            )

    def _notice(self, code: NoticeCode, message: str) -> None:
        notice = Notice(code, message)
        if notice not in self.notices:
            self.notices.append(notice)
            self.services.notify(notice)

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

"""get-or-build: files from the cache when they are there and right, from the build otherwise.

Two promises, and everything here serves one of them: wrong files are never
handed out, and no fault of the cache fails a build that could succeed.  So the
build writes straight into the caller's directory, and whatever then goes wrong
leaves its files where they are.
"""

from __future__ import annotations

import secrets
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from artifact_cache.entry import Entry, Writer
from artifact_cache.errors import CacheError, Corrupt, MalformedEntry, NewerEntry, Unpublishable
from artifact_cache.explain import Explanation, find_nearest
from artifact_cache.files import clear, describe, make_empty, said, seal
from artifact_cache.key import KeyDocument, plain
from artifact_cache.locks import KeyLocks
from artifact_cache.store import CacheStore, StoredEntry, address_of
from artifact_cache.stores.local import LocalStore

WAIT_S = 2 * 3600.0  # longer than a compile; after it two builders work side by side


NoticeCode = Literal[
    "waiting",  # another process builds the same
    "lock",  # there was no lock, so the work may be done twice
    "store",  # the store does not work, or not fully
    "corrupt",  # something broken was set aside
    "newer",  # an entry only newer versions can read
    "not-stored",  # the files are good, and were not kept
    "adopted",  # another build was published first, and its files are used
]


@dataclass(frozen=True, slots=True)
class Notice:
    """Something people should know; the build went on."""

    code: NoticeCode
    message: str


def _ignore(_: object) -> None:
    """Listen to nobody."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheResult:
    """Finished files, read-only, below `path`."""

    path: Path
    key: str
    hit: bool  # nothing was built here
    stored: bool  # the next look-up will find exactly these files
    entry: Entry | None  # None when the files are not in the cache
    notices: tuple[Notice, ...]


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
    ) -> None:
        self.store = store
        self._locks = locks
        self._builder_id = builder_id
        self._version = version
        self._wait_s = wait_s
        self._notify = notify
        self._clock = clock

    def get_or_build(
        self, document: KeyDocument, build: Callable[[Path], None], into: Path
    ) -> CacheResult:
        """Have the artifact's files in `into`, a new or empty directory of the caller's.

        `build` is called at most once, with `into`.  What it raises goes
        through, and `into` stays as it left it.
        """
        return _Run(self, document, into).get_or_build(build)

    def find(self, document: KeyDocument) -> Entry | None:
        """Say whether the artifact is known, without taking its files. Never raises."""
        found = _find(self.store, document, _ignore)
        return found.entry if found else None

    def explain(self, document: KeyDocument, limit: int = 3) -> Explanation:
        """Say what a look-up finds, and the entries that nearly fit. Reads all of one kind."""
        address = address_of(document)
        nearest = find_nearest(plain(document), self.store.list(document.kind), limit)
        return Explanation(key=address.key, hit=self.find(document) is not None, nearest=nearest)


def open_local(
    root: Path,
    *,
    builder_id: str = "",
    version: str = "",
    wait_s: float = WAIT_S,
    notify: Callable[[Notice], None] = _ignore,
) -> ArtifactCache:
    """Open the cache below `root`. Ask `store.capability()` and show what it says."""
    return ArtifactCache(
        LocalStore(root),
        KeyLocks(root / "locks"),
        builder_id=builder_id,
        version=version,
        wait_s=wait_s,
        notify=notify,
    )


class _Run:
    """One get-or-build: what it wants, where it goes, and what it noticed."""

    def __init__(self, cache: ArtifactCache, document: KeyDocument, into: Path) -> None:
        self.cache = cache
        self.document = document
        self.into = into
        self.address = address_of(document)
        self.notices: list[Notice] = []
        self._files: tuple[tuple[str, Path], ...] = ()
        self._build_s = 0.0

    def get_or_build(self, build: Callable[[Path], None]) -> CacheResult:
        make_empty(self.into)
        capability = self.cache.store.capability()
        if capability.mode != "read-write":
            self._notice("store", f"the cache is {capability.mode}: {capability.reason}")
        if capability.mode == "off":
            return self._without_store(build)
        if hit := self._take():
            return hit
        if capability.mode == "read-only":  # nobody could see the result: do not make them wait
            return self._without_store(build)
        with self._single_flight():
            return self._take() or self._build_and_publish(build)

    def _take(self) -> CacheResult | None:
        """Take the files from the store; None, with `into` empty again, if that did not work."""
        stored = _find(self.cache.store, self.document, self._found_broken)
        if stored is None or not self._extract(stored, self.into):
            return None
        return self._result(stored.entry, hit=True)

    def _extract(self, stored: StoredEntry, into: Path) -> bool:
        try:
            stored.extract(into)
        except (CacheError, OSError) as error:
            self._found_broken(error)
            clear(into)
            return False
        return True

    def _without_store(self, build: Callable[[Path], None]) -> CacheResult:
        self._build(build)
        return self._result(None, hit=False)

    def _build_and_publish(self, build: Callable[[Path], None]) -> CacheResult:
        self._build(build)
        entry = self._publish() if self._files else None
        return self._result(entry, hit=False)

    def _build(self, build: Callable[[Path], None]) -> None:
        started = time.monotonic()
        build(self.into)
        self._build_s = round(time.monotonic() - started, 3)
        try:
            self._files = seal(self.into, self.address.kind)
        except (Unpublishable, OSError) as error:
            self._files = ()
            self._notice("not-stored", _said(error))

    def _publish(self) -> Entry | None:
        """Keep what was built; if that does not work it is still what was asked for."""
        try:
            entry = self._describe()
            published = self.cache.store.put(entry, self.into)
        except (CacheError, OSError) as error:
            self._notice("not-stored", _said(error))
            return None
        return entry if published else self._adopt()

    def _describe(self) -> Entry:
        try:
            return Entry(
                key=self.address.key,
                keydoc=plain(self.document),
                outputs=describe(self._files),
                writer=Writer(
                    nonce=secrets.token_hex(16),
                    builder_id=self.cache._builder_id,
                    version=self.cache._version,
                ),
                built_at=int(self.cache._clock()),
                build_s=self._build_s,
            )
        except ValueError as error:
            raise Unpublishable(str(error)) from error

    def _adopt(self) -> Entry | None:
        """Use the files of whoever published first: compilers repeat themselves only nearly,
        and two hosts must not serve a mix.
        """
        winner = _find(self.cache.store, self.document, self._found_broken)
        if winner is None:
            self._notice("not-stored", "another entry is there and cannot be used")
            return None
        suffix = secrets.token_hex(8)
        theirs = self.into.parent / f".{self.into.name}.{suffix}.theirs"
        ours = self.into.parent / f".{self.into.name}.{suffix}.ours"
        try:
            theirs.mkdir()
            if not self._extract(winner, theirs):
                return None
            self.into.rename(ours)
        except (CacheError, OSError) as error:
            self._notice("not-stored", f"another entry is there; {_said(error)}")
            return None
        finally:
            if not ours.exists():
                shutil.rmtree(theirs, ignore_errors=True)
        try:
            theirs.rename(self.into)
        except OSError:
            ours.rename(self.into)
            raise
        shutil.rmtree(ours, ignore_errors=True)
        self._notice("adopted", "another build was published first; its files are used")
        return winner.entry

    @contextmanager
    def _single_flight(self) -> Iterator[None]:
        """Let one process build, as far as there are locks; go on without them otherwise."""
        with ExitStack() as stack:
            try:
                hold = self.cache._locks.hold(self.address.key, self.cache._wait_s, self._waiting)
                if not stack.enter_context(hold):
                    self._notice("lock", "waited long enough for another build; building too")
            except OSError as error:
                self._notice("lock", f"no lock, so the work may be done twice: {_said(error)}")
            yield

    def _waiting(self, holder: str) -> None:
        self._notice("waiting", f"{holder} is building the same {self.address.kind}")

    def _found_broken(self, error: CacheError | OSError) -> None:
        match error:
            case Corrupt() | MalformedEntry():
                self._notice("corrupt", error.message)
            case NewerEntry():
                self._notice("newer", error.message)
            case _:
                self._notice("store", _said(error))

    def _notice(self, code: NoticeCode, message: str) -> None:
        notice = Notice(code, message)
        if notice not in self.notices:
            self.notices.append(notice)
            self.cache._notify(notice)

    def _result(self, entry: Entry | None, *, hit: bool) -> CacheResult:
        return CacheResult(
            path=self.into,
            key=self.address.key,
            hit=hit,
            stored=entry is not None,
            entry=entry,
            notices=tuple(self.notices),
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

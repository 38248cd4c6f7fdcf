"""Statistics of the cache: counters in a file that every process appends to.

One short line per event, written with O_APPEND in one call, so that lines of
two processes never mix.  A line that cannot be written or read is not counted:
statistics never hold anybody up.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from artifact_cache.errors import (
    CacheError,
    Corrupt,
    MalformedEntry,
    NewerEntry,
    Untrusted,
)
from artifact_cache.files import bounded_bytes
from artifact_cache.locks import flock_within
from artifact_cache.strict_json import NotStrict, parse_json

Event = Literal[
    "hit",  # files came out of the cache
    "larger",  # a hit of a larger shape than asked for; counted as a hit, too
    "miss",  # nothing was there that could be used
    "negative",  # the inputs were rejected before
    "built",  # a build ended well
    "failed",  # a build did not
    "stored",  # what was built can be found from now on
    "integrity",  # something broken was set aside
    "policy",  # an entry nobody trusted vouches for was refused
    "newer",  # an entry of a later version was left alone
    "transport",  # a store or disk did not work
]

COMPACT_BYTES = 1024 * 1024
MAX_LOG_BYTES = 16 * COMPACT_BYTES  # what is beyond, where nobody could compact, is not counted
MAX_LINE_BYTES = 4096
LOCK_WAIT_S = 0.5  # then a count is dropped: nobody waits for statistics


def event_of(error: CacheError | OSError) -> Event:
    """Return the event that a fault of a store is counted as."""
    match error:
        case Corrupt() | MalformedEntry():
            return "integrity"
        case Untrusted():
            return "policy"
        case NewerEntry():
            return "newer"
    return "transport"


@dataclass(frozen=True, slots=True, kw_only=True)
class Total:
    """Total of all events of one tier and kind."""

    tier: str
    kind: str
    event: str
    count: int
    bytes: int
    seconds: float  # saved by hits, spent by builds


class StatsLog:
    """Counts in one file. Several processes may share it; none of its methods raises."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def count(
        self, event: Event, *, tier: str, kind: str, size: int = 0, seconds: float = 0.0
    ) -> None:
        """Add one event."""
        line = {"tier": tier, "kind": kind, "event": event, "count": 1}
        data = _line({**line, "bytes": size, "seconds": round(seconds, 3)})
        with suppress(OSError):
            if len(data) <= MAX_LINE_BYTES and self._append(data) > COMPACT_BYTES:
                self.compact()

    def totals(self) -> tuple[Total, ...]:
        """Add everything up, in the order of tier, kind and event."""
        sums: dict[tuple[str, str, str], list[float]] = {}
        for line in self._lines():
            name = (str(line["tier"]), str(line["kind"]), str(line["event"]))
            total = sums.setdefault(name, [0, 0, 0.0])
            for place, field in enumerate(("count", "bytes", "seconds")):
                total[place] += line[field]
        return tuple(
            Total(
                tier=tier,
                kind=kind,
                event=event,
                count=int(count),
                bytes=int(size),
                seconds=round(seconds, 3),
            )
            for (tier, kind, event), (count, size, seconds) in sorted(sums.items())
        )

    def compact(self) -> None:
        """Replace the events by their totals."""
        draft = self._path.with_name(f"{self._path.name}.new")
        with suppress(OSError), self._locked(fcntl.LOCK_EX):
            lines = [_line(_as_dict(total)) for total in self.totals()]
            draft.write_bytes(b"".join(lines))
            draft.replace(self._path)

    def _append(self, data: bytes) -> int:
        """Write a line at the end; give the size of the file then."""
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        with self._locked(fcntl.LOCK_SH):
            descriptor = os.open(self._path, flags, 0o600)
            try:
                size = os.fstat(descriptor).st_size
                if size and os.pread(descriptor, 1, size - 1) != b"\n":
                    data = b"\n" + data  # a process was killed in the middle of a line
                return size + os.write(descriptor, data)
            finally:
                os.close(descriptor)

    def _lines(self) -> Iterator[Mapping[str, Any]]:
        try:
            data = bounded_bytes(self._path, MAX_LOG_BYTES)
        except OSError:
            return
        for text in data.splitlines():
            with suppress(NotStrict):
                line = parse_json(text, max_bytes=MAX_LINE_BYTES)
                if _is_count(line):
                    yield line

    @contextmanager
    def _locked(self, how: int) -> Iterator[None]:
        """Lock the log against a concurrent compaction. Raises OSError."""
        lock = self._path.with_name(f"{self._path.name}.lock")
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            if not flock_within(descriptor, how, LOCK_WAIT_S):
                raise TimeoutError("the statistics are locked")
            yield
        finally:
            os.close(descriptor)


def prometheus(totals: tuple[Total, ...]) -> str:
    """Return the totals in Prometheus' text form."""
    text = []
    for name, field, said in (
        ("artifact_cache_events_total", "count", "What the cache did."),
        ("artifact_cache_bytes_total", "bytes", "Bytes of the artifacts concerned."),
        ("artifact_cache_seconds_total", "seconds", "Seconds saved by hits and spent by builds."),
    ):
        text += [f"# HELP {name} {said}", f"# TYPE {name} counter"]
        for total in totals:
            labels = ",".join(
                f'{label}="{_escaped(getattr(total, label))}"'
                for label in ("tier", "kind", "event")
            )
            text.append(f"{name}{{{labels}}} {getattr(total, field)}")
    return "\n".join(text) + "\n"


def _line(plain: Mapping[str, object]) -> bytes:
    return json.dumps(plain, separators=(",", ":")).encode("ascii") + b"\n"


def _as_dict(total: Total) -> dict[str, object]:
    return {name: getattr(total, name) for name in Total.__slots__}


def _is_count(line: object) -> bool:
    return (
        isinstance(line, dict)
        and all(isinstance(line.get(name), str) for name in ("tier", "kind", "event"))
        and all(type(line.get(name)) in (int, float) for name in ("count", "bytes", "seconds"))
    )


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")

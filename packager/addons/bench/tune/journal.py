"""The journal of a tune: what was built, measured and failed, one JSON object a line.

A line is written whole and synced before the next work begins; a line torn by a crash is removed.
So a killed tune continues with its results, and repeats at most the work that was running.  A lock
that ends with its process allows one process per journal.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from packager.core.bench import BenchLoad
from packager.core.errors import UsageError
from packager.core.files.atomic import explain_disk_errors, sync_directory
from packager.core.quality import QualityReport
from packager.core.text import hide_secrets

VERSION = 1
MAX_BYTES = 256 * 1024 * 1024
_BEGINNING = b'{"event":"tune",'


class _Line(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, defer_build=True)


class Header(_Line):
    """The first line: whose journal it is."""

    event: Literal["tune"] = "tune"
    version: int = VERSION
    key: str  # digest of `asked`
    asked: dict[str, Any]
    started: str  # UTC


class Built(_Line):
    """A candidate was built."""

    event: Literal["built"] = "built"
    candidate: str
    name: str
    image: str  # in the Docker Engine
    digest: str
    seconds: float
    quality: QualityReport | None = None


class Failed(_Line):
    """A candidate is out of the race."""

    event: Literal["failed"] = "failed"
    candidate: str
    name: str
    stage: Literal["build", "start", "load"]
    reason: str
    seconds: float


class Rated(_Line):
    """A candidate was measured for one round."""

    event: Literal["measured"] = "measured"
    candidate: str
    name: str
    round: int
    loads: tuple[BenchLoad, ...]
    seconds: float
    start_s: float | None = None


class Retried(_Line):
    """Failures before this line do not count."""

    event: Literal["retried"] = "retried"


Event = Built | Failed | Rated | Retried
_EVENTS: TypeAdapter[Event] = TypeAdapter(Annotated[Event, Field(discriminator="event")])


def journal_in_use(path: Path) -> UsageError:
    """Return an error: another process has the journal open."""
    return UsageError(
        f"another tune is at work with the journal {str(path)!r}",
        hint="wait for it or end it, then run again; --journal FILE keeps two of them apart",
        code="JournalInUse",
    )


def journal_of_another(path: Path, field: str, was: object, now: object) -> UsageError:
    """Return an error: the journal is of other questions; `field` is the first that differs."""
    return UsageError(
        f"the journal {str(path)!r} is of another tune: its {field} is {was!r}, not {now!r}",
        hint="ask as it was asked then, or name another file with --journal",
        code="JournalOfAnother",
    )


def journal_broken(path: Path, line: int) -> UsageError:
    """Return an error: a line of the journal is not what a tune writes."""
    return UsageError(
        f"line {line} of {str(path)!r} is not of a tune's journal",
        hint="name another file with --journal"
        + (", or measure anew with --fresh" if line > 1 else ""),
        code="JournalBroken",
    )


class TuneJournal:
    """An open journal. Made by `open_journal`."""

    def __init__(self, file: BinaryIO, path: Path, header: Header, events: list[Event]) -> None:
        self._file = file
        self.path = path
        self.header = header
        self.events = events

    def append(self, event: Event) -> None:
        """Write an event and wait until it is on the disk."""
        with explain_disk_errors(self.path):
            _write(self._file, event)
        self.events.append(event)


def key_of(asked: Mapping[str, Any]) -> str:
    """Return the digest that keeps the journals of different questions apart."""
    text = json.dumps(asked, sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


@contextmanager
def open_journal(
    path: Path, asked: Mapping[str, Any], *, now: str, fresh: bool = False
) -> Iterator[TuneJournal]:
    """Open or begin the journal of a question; with `fresh` what is in it is forgotten.

    Raises `UsageError`.
    """
    with explain_disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        file = _open(path)
    with file:
        _lock(file, path)
        data = _own_data(file, path)
        header, events = _parse(b"" if fresh else data, path)
        kept = 0 if fresh else data.rfind(b"\n") + 1
        file.truncate(kept)
        file.seek(kept)
        if header is None:
            header = Header(key=key_of(asked), asked=dict(asked), started=now)
            with explain_disk_errors(path):
                _write(file, header)
                sync_directory(path.parent)
        elif header.key != key_of(asked):
            raise _other(path, header.asked, asked)
        yield TuneJournal(file, path, header, events)


def _open(path: Path) -> BinaryIO:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK, 0o666)
    return os.fdopen(descriptor, "r+b")


def _lock(file: BinaryIO, path: Path) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise journal_in_use(path) from error


def _own_data(file: BinaryIO, path: Path) -> bytes:
    """Return the bytes of a journal; refuse a file that no tune wrote, before it is changed."""
    data = file.read(MAX_BYTES + 1)
    is_ours = data.startswith(_BEGINNING) or _BEGINNING.startswith(data)
    if len(data) > MAX_BYTES or not is_ours:
        raise journal_broken(path, 1)
    return data


def _parse(data: bytes, path: Path) -> tuple[Header | None, list[Event]]:
    """Parse all whole lines; None for an empty journal. A torn last line is left out."""
    header: Header | None = None
    events: list[Event] = []
    for number, line in enumerate(data[: data.rfind(b"\n") + 1].split(b"\n")[:-1], 1):
        try:
            if number == 1:
                header = Header.model_validate_json(line)
            else:
                events.append(_EVENTS.validate_json(line))
        except ValidationError as error:
            raise journal_broken(path, number) from error
    if header is not None and header.version != VERSION:
        raise journal_broken(path, 1)
    return header, events


def _write(file: BinaryIO, line: BaseModel) -> None:
    file.write(hide_secrets(line.model_dump_json()).encode() + b"\n")
    file.flush()
    os.fsync(file.fileno())


def _other(path: Path, was: Mapping[str, Any], now: Mapping[str, Any]) -> UsageError:
    for name in (*was, *now):
        if was.get(name) != now.get(name):
            return journal_of_another(path, name, was.get(name), now.get(name))
    raise AssertionError("journals with other keys ask for the same")

"""Journals of turns: lines of JSON below the state directory, each on the disk before work goes on.

A line that a kill cut in two is left out when the journal is read, and cut off before the next one.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from packager.addons.server.refresh.turn import HeadTurn, Stage, TurnEntry, turns_of
from packager.core.documents import NotStrict, parse_object
from packager.core.errors import ModelRefused, Unavailable
from packager.core.files.atomic import (
    explain_disk_errors,
    read_regular,
    sync_directory,
    write_atomically,
)

SCHEMA = 1
_FILE, _LOCK, _READINGS = "journal.jsonl", ".lock", "readings.json"
_MOST_BYTES = 64 * 1024 * 1024
_STATES = ("begun", "done", "failed")


class RefreshJournal:
    """The journal of one deployment."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._file = folder / _FILE

    def turns(self) -> tuple[HeadTurn, ...]:
        """Return what was done so far; raise `ModelRefused` for a journal of another form."""
        return turns_of(self._entries())

    def turn_folder(self, number: int) -> Path:
        """Return the directory of a turn's files."""
        return self.folder / "turns" / str(number)

    def add(
        self, turn: int, stage: Stage, state: str, result: Mapping[str, Any] | None = None
    ) -> None:
        """Append an entry; it is on the disk when this returns."""
        document = {
            "schema_version": SCHEMA,
            "turn": turn,
            "stage": stage,
            "state": state,
            "at": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "result": dict(result or {}),
        }
        with explain_disk_errors(self._file):
            self.folder.mkdir(parents=True, exist_ok=True)
            is_new = not self._file.exists()
            with self._file.open("ab") as file:
                self._cut_half(file.fileno())
                file.write(json.dumps(document).encode() + b"\n")
                file.flush()
                os.fsync(file.fileno())
            if is_new:
                sync_directory(self.folder)

    def readings(self) -> list[Any]:
        """Return the readings of counters; [] where there are none that can be read."""
        with suppress(OSError, ValueError, KeyError, TypeError):
            found = json.loads((self.folder / _READINGS).read_bytes())
            return [{name: int(one[name]) for name in ("drafts", "accepted")} for one in found]
        return []

    def keep_readings(self, readings: Sequence[Mapping[str, Any]]) -> None:
        """Write the readings."""
        with explain_disk_errors(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            write_atomically(self.folder / _READINGS, json.dumps(readings).encode())

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the journal: one command at a time changes a deployment."""
        from filelock import FileLock, Timeout

        with explain_disk_errors(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            with FileLock(self.folder / _LOCK, timeout=0):
                yield
        except Timeout as error:
            raise Unavailable(
                f"another refresh of {self.folder.name!r} runs",
                hint="wait until it has ended; `packager draft refresh --status` shows where it is",
            ) from error

    def _cut_half(self, file: int) -> None:
        """Remove what follows the last whole line."""
        data = self._file.read_bytes()
        end = data.rfind(b"\n") + 1
        if end != len(data):
            os.ftruncate(file, end)

    def _entries(self) -> Iterator[TurnEntry]:
        try:
            data = read_regular(self._file, _MOST_BYTES)
        except FileNotFoundError:
            return
        for number, line in enumerate(data[: data.rfind(b"\n") + 1].splitlines(), 1):
            try:
                found = parse_object(line)
                if found["schema_version"] != SCHEMA or found["state"] not in _STATES:
                    raise NotStrict("it is of another version")
                yield TurnEntry(
                    turn=int(found["turn"]),
                    stage=found["stage"],
                    state=found["state"],
                    at=str(found["at"]),
                    result=found["result"],
                )
            except (NotStrict, KeyError, TypeError, ValueError) as error:
                raise ModelRefused(
                    f"{self._file}, line {number} is no entry of a journal: {error}",
                    hint="move the directory away to begin anew",
                ) from error

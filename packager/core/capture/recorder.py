"""The queue between a server and its captures: servers never wait, and rows may be lost.

Offering costs a server no more than a look at two counters.  A thread makes the rows, redacts and
writes them.  What the queue, the disk or a redaction does not take is dropped and counted.
"""

from __future__ import annotations

import json
import logging
import queue
import threading
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from packager.core.capture.conversations import is_chosen
from packager.core.capture.files import CaptureFiles, Full
from packager.core.capture.redaction import CommandFailed, RedactCommand
from packager.core.capture.rows import CapturedExchange, Options, Redact, UnreadableRow, make_row

MAX_ROWS = 1024  # exchanges that wait
MAX_BYTES = 64 * 1024 * 1024  # of them together
MAX_EXCHANGE = 4 * 1024 * 1024  # bytes of a request and its answer; larger ones are lost
_PAUSE_S = 1.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class CapturePlace:
    """Where rows are written."""

    root: Path
    name: str  # folders below it, such as `ENDPOINT/VARIANT`


@dataclass(frozen=True)
class _Offered:
    place: CapturePlace
    options: Options
    exchange: CapturedExchange
    size: int


@dataclass(frozen=True)
class _Complete:
    place: CapturePlace


class Recorder:
    """Takes exchanges from any thread, and writes them in its own."""

    def __init__(
        self,
        files: CaptureFiles | None = None,
        *,
        redact: Redact | None = None,
        command: RedactCommand | None = None,
        max_rows: int = MAX_ROWS,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self._files = files or CaptureFiles()
        self._redact = redact
        self._command = command
        self._queue: queue.Queue[_Offered | _Complete | None] = queue.Queue()
        self._max_rows = max_rows
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._waiting_bytes = 0
        self._held_bytes = 0  # of exchanges that have not ended
        self._counts: Counter[str] = Counter()
        self._full: frozenset[Path] = frozenset()
        self._thread: threading.Thread | None = None
        self._is_closed = False

    def offer(self, place: CapturePlace, options: Options, exchange: CapturedExchange) -> bool:
        """Queue an exchange without waiting; return whether it was, and count it otherwise."""
        size = len(exchange.request) + sum(map(len, exchange.answer))
        with self._lock:
            is_taken = (
                not self._is_closed
                and self._queue.qsize() < self._max_rows
                and self._waiting_bytes + size <= self._max_bytes
            )
            if is_taken:
                self._waiting_bytes += size
                self._queue.put_nowait(_Offered(place, options, exchange, size))
                self._begin()
        return is_taken or self.lose("queue-full")

    def hold(self, size: int) -> bool:
        """Count bytes that an exchange keeps, less for what it lets go; False if too many are."""
        with self._lock:
            is_held = size < 0 or self._held_bytes + size <= self._max_bytes
            self._held_bytes += size if is_held else 0
        return is_held

    def lose(self, reason: str, detail: str = "") -> bool:
        """Count a lost row and return False; report the first, second, fourth, eighth."""
        with self._lock:
            self._counts[f"dropped-{reason}"] += 1
            count = self._counts[f"dropped-{reason}"]
        if count & (count - 1) == 0:
            _log.warning(
                "captures dropped (%s): %d; %s", reason, count, detail or "traffic goes on"
            )
        return False

    def complete(self, place: CapturePlace) -> None:
        """Complete the files whose names begin as the place's, behind what was offered."""
        with self._lock:
            if not self._is_closed:
                self._queue.put_nowait(_Complete(place))
                self._begin()

    def is_full(self, root: Path) -> bool:
        """Return whether a limit of bytes or of the disk ended the captures below a root."""
        return root in self._full

    def counts(self) -> dict[str, int]:
        """Return how many rows and bytes were written, and how many rows dropped, by reason."""
        return dict(self._counts)

    def close(self, wait_s: float = 10.0) -> None:
        """Write waiting rows, complete all files, and accept no more rows."""
        with self._lock:
            self._is_closed = True
            thread = self._thread
            self._queue.put_nowait(None)
        if thread is not None:
            thread.join(wait_s)

    def _begin(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="capture", daemon=True)
            self._thread.start()

    def _work(self) -> None:
        looked_s = time.monotonic()
        while True:
            try:
                taken = self._queue.get(timeout=_PAUSE_S)
            except queue.Empty:
                self._files.rotate()
                continue
            if taken is None:
                break
            if isinstance(taken, _Complete):
                self._files.complete(taken.place.root, taken.place.name)
                continue
            with self._lock:
                self._waiting_bytes -= taken.size
            self._write(taken)
            if time.monotonic() - looked_s > _PAUSE_S:
                looked_s = time.monotonic()
                self._files.rotate()
        self._files.close()
        if self._command is not None:
            self._command.close()

    def _write(self, offered: _Offered) -> None:
        try:
            if not is_chosen(offered.exchange.request, offered.options.share):
                self._counts["not-chosen"] += 1
                return
            row = make_row(offered.exchange, offered.options, self._redact)
            kept = row if self._command is None else self._command.redact(row)
            if kept is None:
                self.lose("by-command")
                return
            line = json.dumps(kept, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
            self._files.write(offered.place.root, offered.place.name, line)
        except UnreadableRow:
            self.lose("not-a-text")
        except CommandFailed as error:
            self.lose("command-failed", f"the command that redacts failed: {error}")
        except Full as error:
            self.lose("full", str(error))
        except OSError as error:
            self.lose("not-written", f"{offered.place.root}: {error.strerror or error}")
        except Exception as error:  # an unexpected row must not end the thread
            self.lose("not-made", repr(error))
        else:
            self._counts["rows"] += 1
            self._counts["bytes"] += len(line)
        self._full = self._files.full()

"""Turns: how many layers are read at once, while others are being stored."""

from __future__ import annotations

import threading


class ReadSlot:
    """Turn to read a layer; it ends when every output has the last byte."""

    def __init__(self, turns: threading.Semaphore) -> None:
        self._turns = turns
        self._is_held = False

    def __enter__(self) -> ReadSlot:
        self.take()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def take(self) -> None:
        """Block until fewer than `WORKERS` layers are being read, unless this one has its turn."""
        if not self._is_held:
            self._turns.acquire()
            self._is_held = True

    def end(self) -> None:
        """Release the turn, so that the next layer can be read."""
        if self._is_held:
            self._is_held = False
            self._turns.release()

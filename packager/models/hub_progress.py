"""Progress of a download by huggingface-hub, as events instead of a bar."""

from __future__ import annotations

import os
from threading import Lock
from typing import Any, Protocol


class DownloadCallback(Protocol):
    """Hears of bytes so far, of how many, and how many of them an earlier download left."""

    def __call__(self, done: int, size: int, kept: int = 0) -> None: ...


def told_after(tell: DownloadCallback, before: int) -> DownloadCallback:
    """Return a receiver for a download that follows one of `before` bytes."""

    def after(done: int, size: int, kept: int = 0) -> None:
        tell(before + done, before + size, kept)

    return after


def progress_bar_class(tell: DownloadCallback, size: int) -> type[Any]:
    """Return a tqdm class that reports the bytes of all files of a download to a callback.

    `size` is what all files have together.  Bars of several threads are added up.
    """
    from tqdm import tqdm

    counts: list[int] = []
    kept: list[int] = []
    lock = Lock()

    class Bar(tqdm):  # type: ignore[misc]
        def __init__(self, *arguments: Any, **settings: Any) -> None:
            settings.pop("name", None)
            self._nowhere = open(os.devnull, "w")  # noqa: PTH123, SIM115 - closed below
            with lock:
                self._number = len(counts)
                counts.append(0)
                kept.append(int(settings.get("initial") or 0))
            super().__init__(*arguments, **{**settings, "file": self._nowhere, "disable": False})

        def update(self, n: float | None = 1) -> bool | None:
            drawn: bool | None = super().update(n)
            if self.unit == "B":
                with lock:
                    counts[self._number] = int(self.n)
                    tell(min(sum(counts), size), size, min(sum(kept), size))
            return drawn

        def close(self) -> None:
            super().close()
            self._nowhere.close()

    return Bar

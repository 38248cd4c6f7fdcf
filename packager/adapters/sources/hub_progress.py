"""Bytes of a download by huggingface-hub, told instead of drawn."""

from __future__ import annotations

import os
from collections.abc import Callable
from threading import Lock
from typing import Any

Told = Callable[[int, int], None]  # bytes so far, and in all as far as that is known


def telling_bars(tell: Told, size: int) -> type[Any]:
    """Make a class for the hub's client to use as its progress bars, one for each file.

    `size` is what all files have together.  Bars of several threads are added up.
    """
    from tqdm import tqdm

    counts: list[int] = []
    lock = Lock()

    class Telling(tqdm):  # type: ignore[misc]
        def __init__(self, *arguments: Any, **settings: Any) -> None:
            settings.pop("name", None)
            self._nowhere = open(os.devnull, "w")  # noqa: PTH123, SIM115 - closed below
            with lock:
                self._number = len(counts)
                counts.append(0)
            super().__init__(*arguments, **{**settings, "file": self._nowhere, "disable": False})

        def update(self, n: float | None = 1) -> bool | None:
            drawn: bool | None = super().update(n)
            if self.unit == "B":
                with lock:
                    counts[self._number] = int(self.n)
                    tell(min(sum(counts), size), size)
            return drawn

        def close(self) -> None:
            super().close()
            self._nowhere.close()

    return Telling

"""Bytes of a download by huggingface-hub, told instead of drawn."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

Told = Callable[[int, int], None]  # bytes so far, and in all as far as that is known


def telling_bars(tell: Told) -> type[Any]:
    """Give a class for the hub's client to use as its progress bar.

    The client has one bar for bytes from the network and, in newer versions,
    one for bytes on the disk: the one that is further counts.
    """
    from tqdm import tqdm

    counts: dict[int, tuple[int, int]] = {}

    class Telling(tqdm):  # type: ignore[misc]
        def __init__(self, *arguments: Any, **settings: Any) -> None:
            settings.pop("name", None)
            self._nowhere = open(os.devnull, "w")  # noqa: PTH123, SIM115 - closed below
            super().__init__(*arguments, **{**settings, "file": self._nowhere, "disable": False})

        def update(self, n: float | None = 1) -> bool | None:
            drawn: bool | None = super().update(n)
            if self.unit == "B":
                counts[id(self)] = (int(self.n), int(self.total or 0))
                tell(max(n for n, _ in counts.values()), max(all_ for _, all_ in counts.values()))
            return drawn

        def close(self) -> None:
            super().close()
            self._nowhere.close()

    return Telling

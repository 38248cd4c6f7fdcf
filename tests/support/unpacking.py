"""Directories that many runs share, each filled once, whole or not at all."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from tests.support.workers import SERVING, load

MARKER = ".complete"
builder = load(SERVING / "vllm-cpu/build-base")


def fill_once(place: Path, content: str, fill: Callable[[Path], None]) -> Path:
    """Return `place` with `content` in it, filled beside and renamed; one process does it.

    A run that was killed leaves a directory beside it, whose programs may still
    write there; the next run ends those and removes it.  What an older version
    of these tests filled in place is not believed: its marker names no content.
    """
    with builder.locked(place.with_name(f"{place.name}.lock")):
        if _content(place) == content:
            return place
        builder.remove_work(place)
        if place.exists():
            place.rename(builder.work_path(place))
            builder.remove_work(place)
        work = builder.work_path(place)
        work.mkdir()
        try:
            fill(work)
            (work / MARKER).write_text(content)
            work.rename(place)
        except BaseException:
            shutil.rmtree(work, ignore_errors=True)
            raise
    return place


def _content(place: Path) -> str | None:
    try:
        return (place / MARKER).read_text()
    except OSError:
        return None

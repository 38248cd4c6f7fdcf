"""Answers as a load client times them, with the fields that a test cares about."""

from __future__ import annotations

from typing import Any

from packager.load.values import Chunk, Level, LoadResult, LoadRun

STARTED = "2026-11-23T10:00:00Z"


def answer(
    number: int = 0, *, sent: float = 0.0, at: tuple[float, ...], **fields: Any
) -> LoadResult:
    """Return an answer whose pieces came at these seconds after it was sent."""
    return LoadResult(
        number=number,
        sent_s=sent,
        ended_s=fields.pop("ended", sent + (at[-1] if at else 0.0)),
        chunks=fields.pop("chunks", tuple(Chunk(at_s=sent + second) for second in at)),
        text=fields.pop("text", "x" * len(at)),
        status=fields.pop("status", 200),
        **fields,
    )


def failure(number: int = 0, kind: Any = "status", **fields: Any) -> LoadResult:
    return LoadResult(number=number, sent_s=0.0, ended_s=1.0, failure=kind, **fields)


def load(*results: LoadResult, seconds: float = 10.0, **fields: Any) -> LoadRun:
    return LoadRun(
        level=fields.pop("level", Level(concurrency=4)),
        results=results,
        seconds=seconds,
        started=fields.pop("started", STARTED),
        **fields,
    )

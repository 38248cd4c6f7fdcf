"""Answers as a load client times them, with the fields that a test cares about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from packager.addons.bench.load.values import Chunk, Level, LoadResult, LoadRun
from packager.core.bench import BenchError, BenchLoad, Metric

STARTED = "2026-11-23T10:00:00Z"


def answer(number: int = 0, *, sent: float = 0.0, at: Sequence[float], **fields: Any) -> LoadResult:
    """Return an answer whose pieces came at these seconds after it was sent.

    `chunks` says more of them: each is the fields of a `Chunk`.
    """
    given = {
        "ended_s": fields.pop("ended", sent + (at[-1] if at else 0.0)),
        "chunks": tuple(
            Chunk(**one) for one in fields.pop("chunks", [{"at_s": sent + second} for second in at])
        ),
        "text": "x" * len(at),
        "status": 200,
    }
    return LoadResult(number=number, sent_s=sent, **(given | fields))


def failure(number: int = 0, kind: Any = "status", **fields: Any) -> LoadResult:
    return LoadResult(number=number, sent_s=0.0, ended_s=1.0, failure=kind, **fields)


def load(*results: LoadResult, **fields: Any) -> LoadRun:
    given = {"level": Level(concurrency=4), "seconds": 10.0, "started": STARTED}
    return LoadRun(results=results, **(given | fields))


def load_of(answers: Sequence[dict[str, Any]], **fields: Any) -> LoadRun:
    """Return a load of answers as a corpus has them: the fields of `answer`, or of `failure`."""
    made = (failure(**one) if "kind" in one else answer(**one) for one in answers)
    return load(*made, **fields)


def bench_load(metrics: Mapping[str, float], *, failed: int = 0, **fields: Any) -> BenchLoad:
    """Return the figures of a load of a hundred requests: each metric is alike for all."""
    made = {tag: Metric(unit="", avg=value, p50=value) for tag, value in metrics.items()}
    errors = (BenchError(kind="cut", reason="", count=failed),) if failed else ()
    given = {"requests": 100, "answered": 100 - failed, "seconds": 60, "errors": errors}
    return BenchLoad(metrics=made, **(given | fields))

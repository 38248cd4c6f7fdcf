"""Benchmark results from a file, as predictions are calibrated with them.

    {"points": [{"concurrency": 8, "tpot_ms": 42.7}, …]}

Each point is the time per output token (TPOT, in milliseconds: after the first
token, averaged over a request) that a user measured with the planned set-up and
workload.  Other keys are left alone, so that a benchmark's own file will do.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt

from packager.adapters.user_files import read_user_file
from packager.core.documents import NotStrict, parse_model
from packager.errors import UsageError

MAX_BYTES = 16 * 1024 * 1024  # a benchmark's own file has much besides


class MeasuredPoint(BaseModel):
    """One concurrency of a benchmark."""

    model_config = ConfigDict(defer_build=True, frozen=True)

    concurrency: PositiveInt
    tpot_ms: PositiveFloat = Field(allow_inf_nan=False)


class _Results(BaseModel):
    points: tuple[MeasuredPoint, ...] = Field(min_length=1)


def load_measurements(path: Path) -> tuple[MeasuredPoint, ...]:
    """Read the points of a file of results."""
    data = read_user_file(
        path,
        what="the measurements",
        hint='name a JSON file: {"points": [{"concurrency": 8, "tpot_ms": 42.7}]}',
        max_bytes=MAX_BYTES,
    )
    try:
        return parse_model(_Results, data, max_bytes=MAX_BYTES).points
    except NotStrict as error:
        raise UsageError(
            f"{str(path)!r} holds no measurements: {error}",
            hint='write {"points": [{"concurrency": 8, "tpot_ms": 42.7}]}',
        ) from error

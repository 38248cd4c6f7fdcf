"""Benchmark results from a file, as predictions are calibrated with them.

    {"points": [{"concurrency": 8, "tpot_ms": 42.7}, …]}

Each point is the time per output token (TPOT, in milliseconds: after the first
token, averaged over a request) that a user measured with the planned set-up and
workload.  Other keys are left alone, so that a benchmark's own file will do.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt, ValidationError

from packager.core.validation import first_fault
from packager.errors import NotFound, UsageError


class MeasuredPoint(BaseModel):
    """One concurrency of a benchmark."""

    model_config = ConfigDict(frozen=True)

    concurrency: PositiveInt
    tpot_ms: PositiveFloat = Field(allow_inf_nan=False)


class _Results(BaseModel):
    points: tuple[MeasuredPoint, ...] = Field(min_length=1)


def load_measurements(path: Path) -> tuple[MeasuredPoint, ...]:
    """Read the points of a file of results."""
    try:
        return _Results.model_validate_json(path.read_bytes()).points
    except OSError as error:
        raise NotFound(
            f"cannot read the measurements {str(path)!r}: {error.strerror}",
            hint='name a JSON file: {"points": [{"concurrency": 8, "tpot_ms": 42.7}]}',
        ) from error
    except ValidationError as error:
        raise UsageError(
            f"{str(path)!r} holds no measurements: {first_fault(error)}",
            hint='write {"points": [{"concurrency": 8, "tpot_ms": 42.7}]}',
        ) from error

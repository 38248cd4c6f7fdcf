"""How the server handles each operation of AWS: the table `data/operations.toml`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Literal, get_args

from packager.addons.deploy.sagemaker.shapes import service_model
from packager.core.share import read_shipped

# answered: done; kept: stored and described without an effect; refused: with the reason
Here = Literal["answered", "kept", "refused"]
SAGEMAKER = "sagemaker"
INVOCATIONS = ("InvokeEndpoint", "InvokeEndpointAsync", "InvokeEndpointWithResponseStream")

_TABLE = Path(__file__).parent / "data" / "operations.toml"


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationRow:
    """How one service's operations are handled."""

    service: str  # as clients sign for it; "*": any other
    names: tuple[str, ...]  # patterns
    here: Here
    says: str

    def fits(self, service: str, operation: str) -> bool:
        """Return whether the row is about an operation."""
        return fnmatchcase(service, self.service) and any(
            fnmatchcase(operation, one) for one in self.names
        )


@cache
def operation_rows() -> tuple[OperationRow, ...]:
    """Read the table; the last row fits everything."""
    rows = tuple(
        OperationRow(
            service=row["service"], names=tuple(row["names"]), here=row["here"], says=row["says"]
        )
        for row in read_shipped(_TABLE)["operations"]
    )
    if odd := {row.here for row in rows} - set(get_args(Here)):
        raise ValueError(f"{_TABLE}: {min(odd)!r} is no answer")
    return rows


def row_of(service: str, operation: str) -> OperationRow:
    """Return the row of an operation."""
    return next(row for row in operation_rows() if row.fits(service, operation))


def names_of(row: OperationRow) -> Sequence[str]:
    """Return the operations of a row, in order; patterns of other services stay patterns."""
    if row.service != SAGEMAKER:
        return row.names
    known = sorted({*service_model()["operations"], *INVOCATIONS})
    return [name for name in known if row_of(SAGEMAKER, name) is row]

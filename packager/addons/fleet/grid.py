"""Reading a grid, and the requests that it stands for."""

from __future__ import annotations

import fnmatch
import itertools
import json
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import ValidationError

from packager.addons.fleet.documents import read_document
from packager.core.errors import UsageError
from packager.core.request import BuildRequest, unknown_fields
from packager.core.validation import first_fault
from packager.core.warmup import PLAN_SCHEMA, Grid, WarmPlan

LARGEST = 100_000  # requests: more is a slip of the pen


def bad_grid(place: str, reason: str) -> UsageError:
    """Return an error: the file is not a valid grid."""
    return UsageError(
        f"{place!r} cannot be used: {reason}",
        hint="docs/warm-up.md shows a grid; `packager warm schema` describes a plan",
        code="BadGrid",
    )


def read_grid_or_plan(place: str) -> Grid | WarmPlan:
    """Read a file: what has jobs is a plan."""
    document = read_document(place)
    try:
        if "jobs" not in document:
            return Grid.model_validate(document)
        if (found := document.get("schema")) not in range(1, PLAN_SCHEMA + 1):
            raise bad_grid(place, f"it is a plan of schema {found!r}, not 1 to {PLAN_SCHEMA}")
        return WarmPlan.model_validate_json(json.dumps(document))
    except ValidationError as error:
        raise bad_grid(place, first_fault(error, "the file")) from error


def read_plan(place: str) -> WarmPlan:
    """Read a plan. Raises `UsageError` for a grid."""
    found = read_grid_or_plan(place)
    if isinstance(found, Grid):
        raise bad_grid(place, "it is a grid; `packager warm plan FILE --output PLAN` makes a plan")
    return found


def expand(grid: Grid) -> Iterator[dict[str, Any]]:
    """Yield the fields of each request, in the order written. Raises `UsageError`."""
    _check_names(grid)
    count = len(grid.shapes or ((),))
    for values in grid.axes.values():
        count *= len(values)
    if count > LARGEST:
        raise UsageError(
            f"the grid stands for {count} requests", hint=f"make it smaller: {LARGEST} are allowed"
        )
    for chosen in itertools.product(*grid.axes.values()):
        for shape in grid.shapes or ({},):
            fields = {**grid.defaults, **dict(zip(grid.axes, chosen, strict=True)), **shape}
            if not any(_matches(fields, row) for row in grid.exclude):
                yield fields


def _check_names(grid: Grid) -> None:
    """Refuse names that no request has: an `exclude` with one would have no effect."""
    tables = [grid.defaults, grid.axes, *grid.shapes, *grid.exclude]
    ours = {"outputs", "executor", "address", "trust_roots"}
    known = tuple(name for name in BuildRequest.model_fields if name not in ours)
    unknown = dict.fromkeys(
        name for name in itertools.chain.from_iterable(tables) if name not in known
    )
    if unknown:
        raise unknown_fields(tuple(unknown), "the grid", known)
    for name, values in grid.axes.items():
        if not values:
            raise UsageError(f"axis {name!r} has no values", hint="leave it out, or name some")
    for row in grid.exclude:
        if not row:
            raise UsageError(
                "an exclude without fields leaves out everything",
                hint="name the fields and values of the requests to leave out",
            )


def _matches(fields: Mapping[str, Any], row: Mapping[str, Any]) -> bool:
    return all(_is_like(fields.get(name), wanted) for name, wanted in row.items())


def _is_like(value: Any, wanted: Any) -> bool:
    if isinstance(wanted, list):
        return any(_is_like(value, one) for one in wanted)
    if isinstance(value, str) and isinstance(wanted, str):
        return fnmatch.fnmatchcase(value, wanted)
    return bool(value == wanted)

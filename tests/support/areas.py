"""Areas of the tests: which test files belong to which capability, from `tests/areas.toml`."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from tests.support.places import ROOT

TABLE = ROOT / "tests" / "areas.toml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Area:
    """A capability: its page in docs/, where its tests are, and what they start."""

    name: str
    page: str  # without `.md`
    tests: tuple[str, ...]  # patterns of paths from the root of the repository
    needs: tuple[str, ...] = ()  # names of `scripts/prepare-tests --list`


def read_areas(table: Path = TABLE) -> dict[str, Area]:
    """Read the areas by name, in the order of the file."""
    rows = tomllib.loads(table.read_text("utf-8"))
    return {
        name: Area(
            name=name,
            page=row["page"],
            tests=tuple(row["tests"]),
            needs=tuple(row.get("needs", ())),
        )
        for name, row in rows.items()
    }


def area_of(file: str, areas: Iterable[Area]) -> str:
    """Return the name of the area that a test file belongs to.

    Of patterns that match the file or a directory above it, the one with the most parts wins.
    Raise `LookupError` where none matches, or where two areas have patterns of that length.
    """
    path = PurePosixPath(file)
    best: dict[str, int] = {}
    for area in areas:
        lengths = [len(PurePosixPath(one).parts) for one in area.tests if _lies_under(path, one)]
        if lengths:
            best[area.name] = max(lengths)
    longest = [name for name, length in best.items() if length == max(best.values())]
    if len(longest) != 1:
        problem = f"belongs to {' and '.join(longest)}" if longest else "belongs to no area"
        raise LookupError(f"{file} {problem}: tests/areas.toml must name one")
    return longest[0]


def files_by_area(areas: Mapping[str, Area], root: Path = ROOT) -> dict[str, list[str]]:
    """Return the test files of every area, sorted; raise `LookupError` as `area_of` does."""
    found: dict[str, list[str]] = {name: [] for name in areas}
    for path in sorted((root / "tests").rglob("test_*.py")):
        file = path.relative_to(root).as_posix()
        found[area_of(file, areas.values())].append(file)
    return found


def _lies_under(path: PurePosixPath, pattern: str) -> bool:
    length = len(PurePosixPath(pattern).parts)
    return len(path.parts) >= length and PurePosixPath(*path.parts[:length]).match(pattern)

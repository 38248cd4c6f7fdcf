"""Cases of tests, and values that tests expect, in a TOML file beside each test.

`tests/unit/room/test_thing.py` has `tests/unit/room/corpus/thing.toml`.
"""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest


def cases(test: str, table: str) -> tuple[list[str], list[Any]]:
    """Read a table for `@pytest.mark.parametrize(*cases(__file__, "table"))`.

    A row has an `id`, and may say `why`.  Its other fields are the test's arguments; those that
    only other rows have are None.
    """
    rows: list[dict[str, Any]] = _read(test)[table]
    fields = dict.fromkeys(name for row in rows for name in row)
    names = [name for name in fields if name not in ("id", "why")]
    return names, [pytest.param(*map(row.get, names), id=row["id"]) for row in rows]


def document(test: str, table: str) -> Any:
    """Read one table, or one value, as it is written."""
    return _read(test)[table]


def shows(found: Any, expected: Any) -> bool:
    """Whether a value has what is expected of it: every field, every item, equal values."""
    if isinstance(expected, dict):
        return all(name in found and shows(found[name], one) for name, one in expected.items())
    if isinstance(expected, list):
        return len(found) == len(expected) and all(map(shows, found, expected))
    return bool(found == expected)


def content_of(row: Mapping[str, Any]) -> bytes:
    """Return a content that is stated as text, in hexadecimal, or as parts that are repeated."""
    if "hex" in row:
        return bytes.fromhex(row["hex"])
    parts = row.get("parts", [(row.get("text"), 1)])
    return "".join(text * times for text, times in parts).encode()


@functools.cache
def _read(test: str) -> dict[str, Any]:
    path = Path(test)
    name = path.stem.removeprefix("test_")
    return tomllib.loads((path.parent / "corpus" / f"{name}.toml").read_text(encoding="utf-8"))

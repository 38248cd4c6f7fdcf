"""What README promises and which tests of `make test` hold it, read from the tests' own marks."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.support.places import ROOT

TABLE = ROOT / "tests" / "capabilities.toml"
_MARK = re.compile(r'pytest\.mark\.capability\("([^"]*)"\)')
_TEST = re.compile(r"^def (test_\w+)\(", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Capability:
    """Something that README promises."""

    name: str
    promise: str  # words of README
    against: str  # the real things that its tests ask


def read_capabilities(table: Path = TABLE) -> dict[str, Capability]:
    """Read the capabilities by name, in the order of the file."""
    rows = tomllib.loads(table.read_text("utf-8"))
    return {name: Capability(name=name, **row) for name, row in rows.items()}


def marked_tests(root: Path = ROOT) -> Iterator[tuple[str, str]]:
    """Yield each marked test as its capability and `FILE::TEST`; a mark stands above its test."""
    for path in sorted((root / "tests").rglob("test_*.py")):
        text = path.read_text("utf-8")
        for mark in _MARK.finditer(text):
            test = _TEST.search(text, mark.end())
            name = path.relative_to(root).as_posix()
            yield mark[1], f"{name}::{test[1]}" if test else name


def held_capabilities(root: Path = ROOT) -> list[tuple[Capability, tuple[str, ...]]]:
    """Return each capability with the tests that are marked with it."""
    tests: dict[str, list[str]] = {}
    for name, test in marked_tests(root):
        held = tests.setdefault(name, [])
        if test not in held:
            held.append(test)
    return [(one, tuple(tests.get(name, ()))) for name, one in read_capabilities().items()]

"""The grammar of references is known where they are parsed, and nowhere else."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import packager
from tests.support.cases import read_tables

TABLES = read_tables(__file__)

ROOT = Path(packager.__file__).parent
PREFIXES = ("oci:", "docker:", "embedded:", "hf://", "s3://")
TAKING_APART = ("startswith", "removeprefix", "partition", "rpartition", "split", "fullmatch")

# Files that parse something else, which begins alike.
OTHERS = TABLES["others"]
PARSERS = ("models/reference.py", "images/target.py", "core/references.py")


def taken_apart(source: str) -> Iterator[int]:
    """Yield the lines where a text is taken apart by a prefix of a reference."""
    for node in ast.walk(ast.parse(source)):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        words = [one.value for one in node.args if isinstance(one, ast.Constant)]
        if node.func.attr in TAKING_APART and any(word in PREFIXES for word in words):
            yield node.lineno


@pytest.mark.parametrize(
    "code", ['text.removeprefix("oci:")', 'a.b.startswith("hf://")', 'text.partition("s3://")']
)
def test_taking_a_reference_apart_is_noticed(code: str) -> None:
    assert list(taken_apart(code)) == [1]


def test_no_file_but_the_parsers_takes_a_reference_apart() -> None:
    found = {
        path.relative_to(ROOT).as_posix()
        for path in ROOT.rglob("*.py")
        if any(taken_apart(path.read_text(encoding="utf-8")))
    }

    assert found - set(PARSERS) == set(OTHERS)

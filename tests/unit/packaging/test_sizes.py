"""Files and functions stay small enough to be read at once."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = next(path for path in Path(__file__).parents if (path / "pyproject.toml").is_file())
PLACES = ("packager", "artifact_cache", "containers", "scripts")
MOST_LINES = 450  # of a file
LONGEST = 70  # lines of a function
# Their bytes are in images, or decide whether a base is made anew: splitting them changes digests.
FROZEN = {"containers/serving/vllm-cpu/build-base", "containers/serving/vllm/inputs_adapter.py"}


def is_python(path: Path) -> bool:
    if path.suffix == ".py":
        return True
    if path.suffix or not path.is_file():
        return False
    with path.open("rb") as file:
        start = file.read(80)
    return start.startswith(b"#!") and b"python" in start


def sources(place: str) -> Iterator[Path]:
    for path in sorted((ROOT / place).rglob("*")):
        if "__pycache__" not in path.parts and is_python(path):
            yield path


@pytest.mark.parametrize("place", PLACES)
def test_no_file_and_no_function_is_too_long(place: str) -> None:
    found = []
    for path in sources(place):
        name = path.relative_to(ROOT).as_posix()
        text = path.read_text(encoding="utf-8")
        lines = text.count("\n")
        if lines > MOST_LINES and name not in FROZEN:
            found.append(f"{name} has {lines} lines")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and name not in FROZEN:
                length = (node.end_lineno or node.lineno) - node.lineno + 1
                if length > LONGEST:
                    found.append(f"{name}: {node.name} has {length} lines")
    assert not found


def test_the_frozen_files_are_still_there() -> None:
    assert [name for name in sorted(FROZEN) if not (ROOT / name).is_file()] == []

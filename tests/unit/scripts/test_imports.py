"""Programs beside the packages import what is there: no type checker reads them."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.places import ROOT

OURS = ("packager", "artifact_cache")


def programs() -> Iterator[Path]:
    """Python files below `scripts` and `benchmarks`, those without a suffix too."""
    for path in sorted([*(ROOT / "scripts").iterdir(), *(ROOT / "benchmarks").rglob("*")]):
        if path.suffix == ".py" or (path.is_file() and path.read_bytes()[:40].find(b"python") > 0):
            yield path


@pytest.mark.parametrize("path", list(programs()), ids=lambda path: str(path.relative_to(ROOT)))
def test_what_a_program_imports_is_there(path: Path) -> None:
    missing = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in OURS:
            module = importlib.import_module(node.module or "")
            for name in (one.name for one in node.names):
                if not hasattr(module, name):
                    try:
                        importlib.import_module(f"{node.module}.{name}")
                    except ImportError:
                        missing.append(f"{node.module}.{name}")
        elif isinstance(node, ast.Import):
            for one in node.names:
                if one.name.partition(".")[0] in OURS:
                    importlib.import_module(one.name)

    assert missing == []

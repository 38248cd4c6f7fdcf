"""Each room says what it is for and what others import of it; it imports nothing itself."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path

import pytest

from tests.support.places import ROOT

ADDONS = sorted(one.parent for one in (ROOT / "packager/addons").glob("*/__init__.py"))
ROOMS = [
    *(one.parent for one in sorted((ROOT / "packager").glob("*/__init__.py"))),
    *ADDONS,
]
ROOMS.remove(ROOT / "packager/addons")


def _module(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts).removesuffix(".__init__")


def _imported(path: Path) -> set[str]:
    """Return the modules and names that a file imports, those inside functions too."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found


def _imports_from_outside() -> dict[Path, set[str]]:
    """Return for each room which of its modules and packages the others import."""
    found = defaultdict(set)
    for path in (ROOT / "packager").rglob("*.py"):
        for name in _imported(path):
            for room in ROOMS:
                inside, own = _module(room / "__init__.py"), room in path.parents
                first = name.removeprefix(f"{inside}.").partition(".")[0]
                is_part = (room / first).is_dir() or (room / f"{first}.py").is_file()
                if name.startswith(f"{inside}.") and not own and is_part:
                    found[room].add(first)
    return found


USED = _imports_from_outside()


@pytest.mark.parametrize("room", ROOMS, ids=lambda room: _module(room / "__init__.py"))
def test_a_room_names_the_modules_that_others_import(room: Path) -> None:
    tree = ast.parse((room / "__init__.py").read_text(encoding="utf-8"))
    purpose, _, named = (ast.get_docstring(tree) or "").partition("\n\n")

    assert len(tree.body) == 1, "it holds its docstring only: a start loads what it uses"
    assert purpose.endswith(".")
    assert set(re.findall(r"`(\w+)`", named)) == USED[room]

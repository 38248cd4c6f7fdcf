"""Look at a worker's private names with its libraries: run by the tool's Python.

    python _library_names.py TOOL_DIR     with TOOL_DIR and `common` in PYTHONPATH

Prints a JSON document: the names of `library.py` as they are here, and what the worker's modules
use of libraries and the list lacks:

- attributes, methods and imports whose names begin with `_`
- what a module keeps to itself: not in its `__all__`, and not in a package's own module
- attributes of a library that are set, other than by `PRIVATE.replaced`
"""

from __future__ import annotations

import ast
import importlib
import importlib.metadata
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import private_names
from private_names import digest_of, source_of

COMMON = Path(private_names.__file__).parent
# Their names without `_` are public as they stand.
BROAD = ("torch", "numpy", "safetensors")
SETTERS = frozenset({"setattr", "patch_attr", "patch_attrs"})


def look(tool: Path) -> dict[str, Any]:
    """Return the listed names as they are here, and what is used and not listed."""
    from library import PRIVATE

    versions = importlib.metadata.packages_distributions()
    names = [
        {
            "module": module,
            "name": name,
            "why": row.why,
            "read": row.version,
            "read_digest": row.digest,
            "version": importlib.metadata.version(versions[module.partition(".")[0]][0]),
            "source": source_of(module, name),
            "digest": digest_of(module, name),
        }
        for (module, name), row in PRIVATE.read.items()
    ]
    unlisted = [
        f"{file.name}:{line}: {what}"
        for file in sorted(tool.glob("*.py"))
        for line, what in Uses(file, names).found()
    ]
    return {"names": names, "unlisted": unlisted}


class Uses:
    """Private names of libraries in one module of a worker."""

    def __init__(self, file: Path, names: list[dict[str, str]]) -> None:
        self.tree = ast.parse(file.read_text())
        self.own = {path.stem for place in (file.parent, COMMON) for path in place.glob("*.py")}
        self.listed = {(one["module"], one["name"]) for one in names}
        self.last = {one["name"].rpartition(".")[2] for one in names}
        self.set = "\n".join(one["source"] for one in names)
        self.defined = {
            node.name
            for node in ast.walk(self.tree)
            if isinstance(node, ast.FunctionDef | ast.ClassDef)
        } | {
            node.target.id
            for node in ast.walk(self.tree)
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
        } | {
            node.attr
            for node in ast.walk(self.tree)
            if isinstance(node, ast.Attribute)
            and isinstance(node.ctx, ast.Store)
            and ast.unparse(node.value) == "self"
        }  # fmt: skip
        self.imported: dict[str, tuple[str, str]] = {}  # the name here → module, name in it

    def found(self) -> Iterator[tuple[int, str]]:
        """Yield the line and what stands there."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import | ast.ImportFrom):
                yield from self.imports(node)
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Attribute):
                yield from self.attribute(node)
            elif isinstance(node, ast.ClassDef):
                yield from self.overrides(node)
            elif isinstance(node, ast.Call):
                yield from self.sets(node)

    def imports(self, node: ast.Import | ast.ImportFrom) -> Iterator[tuple[int, str]]:
        for alias in node.names:
            module, name = alias.name, ""
            if isinstance(node, ast.ImportFrom):
                module, name = node.module or "", alias.name
            top = module.partition(".")[0]
            if top in self.own or top in sys.stdlib_module_names:
                continue
            self.imported[alias.asname or alias.name.partition(".")[0]] = (module, name)
            if name and not is_public(module, name) and (module, name) not in self.listed:
                yield node.lineno, f"imports {module}:{name}"

    def attribute(self, node: ast.Attribute) -> Iterator[tuple[int, str]]:
        """Yield private attributes, and public ones of libraries that are set."""
        name = node.attr
        if isinstance(node.ctx, ast.Store) and self.of_library(node.value):
            yield node.lineno, f"sets {ast.unparse(node)}: use PRIVATE.replaced"
        if not name.startswith("_") or name.startswith("__"):
            return
        # `super()` has what the library has, whatever is defined here.
        defined = name in self.defined and ast.unparse(node.value) != "super()"
        is_set = re.search(rf"\b{name}\b *(?:=[^=]|:)|\"{name}\"[:,]", self.set)
        if not defined and name not in self.last and not is_set:
            yield node.lineno, f"uses {ast.unparse(node)}"

    def overrides(self, node: ast.ClassDef) -> Iterator[tuple[int, str]]:
        """Yield private methods that take the place of a library's."""
        for base in node.bases:
            at = self.imported.get(ast.unparse(base))
            if at is None:
                continue
            kind = getattr(importlib.import_module(at[0]), at[1])
            for method in node.body:
                if not isinstance(method, ast.FunctionDef) or not method.name.startswith("_"):
                    continue
                if method.name.startswith("__") or not hasattr(kind, method.name):
                    continue
                holder = next(one for one in kind.__mro__ if method.name in vars(one))
                name = f"{holder.__qualname__}.{method.name}"
                if (holder.__module__, name) not in self.listed:
                    yield method.lineno, f"overrides {holder.__module__}:{name}"

    def sets(self, node: ast.Call) -> Iterator[tuple[int, str]]:
        name = ast.unparse(node.func)
        if name in SETTERS and node.args and self.of_library(node.args[0]):
            yield node.lineno, f"sets by {ast.unparse(node)}: use PRIVATE.replaced"

    def of_library(self, node: ast.expr) -> bool:
        """Whether an expression is a module or class of a library, not an instance."""
        while isinstance(node, ast.Attribute):
            node = node.value
        return isinstance(node, ast.Name) and node.id in self.imported


def is_public(module: str, name: str) -> bool:
    """Whether a library says that a name is for all: `__all__`, or a package's own module."""
    if any(part.startswith("_") for part in (*module.split("."), name)):
        return False
    if module.partition(".")[0] in BROAD:
        return True
    found = importlib.import_module(module)
    return name in (getattr(found, "__all__", None) or ()) or hasattr(found, "__path__")


if __name__ == "__main__":
    print(json.dumps(look(Path(sys.argv[1]))))

"""What scripts that read vLLM's wheels share: their digests, and the registry of models."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator
from pathlib import Path

TABLES = (
    "_TEXT_GENERATION_MODELS",
    "_MULTIMODAL_MODELS",
    "_GENERATION_MODELS",
    "_MIXTURE_MODELS",
)


def digest_of(path: Path) -> str:
    """Return the SHA-256 of a file, as documents name it."""
    with path.open("rb") as file:
        return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"


def registered(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield the architectures that generate, each with the module of its class."""
    for node in tree.body:
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        if isinstance(target, ast.Name) and target.id in TABLES:
            for name, row in items(getattr(node, "value", None)):
                if isinstance(row, ast.Tuple) and (module := text(row.elts[0])):
                    yield name, module


def items(node: ast.AST | None) -> Iterator[tuple[str, ast.expr]]:
    """Yield the texts that are keys of a dictionary, with what stands for their values."""
    if isinstance(node, ast.Dict):
        for key, value in zip(node.keys, node.values, strict=True):
            if key is not None and (name := text(key)):
                yield name, value


def text(node: ast.expr) -> str:
    """Return a constant text; "" for anything else."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""

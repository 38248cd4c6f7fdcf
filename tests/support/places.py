"""Directories of the repository that tests read, and files below any."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "scripts"
DATA = ROOT / "tests" / "support" / "data"  # by room


def files_below(directory: Path, look: Callable[[Path], T] = Path.read_bytes) -> dict[str, T]:
    """Return what `look` sees of every file below a directory, by its path."""
    found = sorted(path for path in directory.rglob("*") if path.is_file())
    return {path.relative_to(directory).as_posix(): look(path) for path in found}


def sha256_in(path: Path) -> str:
    """Return the digest of a file, in hexadecimal."""
    return hashlib.sha256(path.read_bytes()).hexdigest()

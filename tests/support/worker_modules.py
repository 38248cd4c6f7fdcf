"""Modules of the workers under containers/tools, loaded as a worker imports them."""

from __future__ import annotations

import sys
from types import ModuleType

from tests.support.workers import TOOLS, load


def load_module(tool: str, file: str) -> ModuleType:
    """Load a file of a tool, which finds what all workers share."""
    sys.path.insert(0, str(TOOLS / "common"))
    try:
        return load(TOOLS / tool / file)
    finally:
        sys.path.remove(str(TOOLS / "common"))

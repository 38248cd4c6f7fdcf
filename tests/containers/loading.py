"""Import the programs under `containers/`, which are files and not a package."""

from __future__ import annotations

import importlib.util
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[2]
SERVING = ROOT / "containers" / "serving"


def load(path: Path) -> ModuleType:
    """Import the file at `path`, whatever its suffix; its neighbours can be imported by it."""
    name = "containers_" + path.stem.replace("-", "_")
    loader = SourceFileLoader(name, str(path))
    spec = importlib.util.spec_from_loader(name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    sys.path.insert(0, str(path.parent))
    try:
        loader.exec_module(module)
    finally:
        sys.path.remove(str(path.parent))
    return module

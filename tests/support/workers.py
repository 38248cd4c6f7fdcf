"""The programs under `containers/`, which are files and not a package: imported, or run."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Mapping
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

from tests.support.known import known
from tests.support.places import ROOT

SERVING = ROOT / "containers" / "serving"
TOOLS = ROOT / "containers" / "tools"


def load(path: Path) -> ModuleType:
    """Import the file at `path`, whatever its suffix; its neighbours can be imported by it."""
    name = "containers_" + path.stem.replace("-", "_")
    loader = SourceFileLoader(name, str(path))
    spec = known(importlib.util.spec_from_loader(name, loader))
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    sys.path.insert(0, str(path.parent))
    try:
        loader.exec_module(module)
    finally:
        sys.path.remove(str(path.parent))
    return module


def compile_with(
    tool: str, root: Path, parameters: Mapping[str, Any], **environment: str
) -> dict[str, Any]:
    """Run a compiler's worker in a process; it finds `output` and `work` below `root`.

    Return the result that it wrote, which may name an error.
    """
    return run_worker(tool, root, parameters, {}, gpus=0, **environment)


def run_worker(
    tool: str,
    root: Path,
    parameters: Mapping[str, Any],
    inputs: Mapping[str, str],
    *,
    gpus: int = 0,
    **environment: str,
) -> dict[str, Any]:
    """Run a worker in a process, likewise, with the directories of its inputs."""
    result = root / "result.json"
    spec = {
        "protocol": 1,
        "tool": tool,
        "step": "compile",
        "inputs": dict(inputs),
        "gpus": gpus,
        "parameters": dict(parameters),
        "output": str(root / "output"),
        "work": str(root / "work"),
        "result": str(result),
    }
    (root / "spec.json").write_text(json.dumps(spec))
    subprocess.run(
        [sys.executable, str(TOOLS / tool / "worker.py"), str(root / "spec.json")],
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(TOOLS / "common"), **environment},
        capture_output=True,
        timeout=60,
        check=False,
    )
    found: dict[str, Any] = json.loads(result.read_text())
    return found

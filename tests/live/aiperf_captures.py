"""Let AIPerf's own class read captured rows, as its `--input-file` does.

Run with AIPerf 0.13 on the path, a folder as argument; prints what it would replay.  Packages that
other parts of AIPerf need, for sound, pictures and transports, are empty modules here.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import MagicMock


class Missing(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds what nothing else finds, as long as it is not AIPerf's."""

    def find_spec(self, name: str, *_: Any) -> importlib.machinery.ModuleSpec | None:
        if name.startswith(("aiperf", "_")) or name.partition(".")[0] in sys.stdlib_module_names:
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        module = ModuleType(spec.name)
        module.__getattr__ = lambda name: _attribute(name)  # type: ignore[method-assign]
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Leave it empty."""


def _attribute(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    return Anything(name, (), {}) if name[:1].isupper() else MagicMock()


class Anything(type):
    """A class of which every attribute is there, to inherit and to annotate with."""

    def __getattr__(cls, name: str) -> Any:
        return _attribute(name)


sys.meta_path.append(Missing())
from aiperf.dataset.loader.sagemaker_data_capture import (  # noqa: E402
    SageMakerDataCaptureLoader,
)

place = Path(sys.argv[1])
loader = SageMakerDataCaptureLoader.__new__(SageMakerDataCaptureLoader)
rows = [json.loads(line) for file in sorted(place.rglob("*.jsonl")) for line in file.open()]
traces = [loader._parse_trace(row) for row in rows]
turns = [loader._build_turn(trace, "") for trace in traces]
found = {
    "taken": SageMakerDataCaptureLoader.can_load(filename=place),
    "messages": [turn.raw_messages for turn in turns],
    "tools": [turn.raw_tools for turn in turns],
    "limits": [turn.max_tokens for turn in turns],
    "prompts": [trace.input_length for trace in traces],
    "milliseconds": [trace.timestamp for trace in traces],
}
sys.stdout.write(json.dumps(found) + "\n")

"""The demo tool, ready to run: an executor with an environment that all tests share."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from packager.core.events import EventSink, ignore
from packager.core.image import FileRange
from packager.core.model import ModelFile
from packager.core.recipe import Step, StepInput
from packager.images.blobs import BlobReader
from packager.share import share_dir
from packager.steps.local import LocalExecutor
from packager.steps.tools.environments import Environments

OUTSIDE = Path(__file__).parent / "outside"
HELPER = share_dir("containers") / "tools/common"


def environments(
    root: Path, *, find: Callable[[str], Path] = lambda name: OUTSIDE / name, **changes: Any
) -> Environments:
    given = {"environment": dict(os.environ), "on_event": ignore, "log_dir": root / "logs"}
    return Environments(root / "tools", find_directory=find, helper=HELPER, **{**given, **changes})


def executor(
    root: Path,
    *,
    tools: Environments | None = None,
    on_event: EventSink = ignore,
    restart: bool = False,
) -> LocalExecutor:
    return LocalExecutor(
        tools or environments(root),
        work_dir=root / "work",
        log_dir=root / "logs",
        read=BlobReader().chunks,
        on_event=on_event,
        restart=restart,
    )


def step(do: str, files: tuple[ModelFile, ...] = (), **changes: Any) -> Step:
    parameters = {"do": do, **changes.pop("parameters", {})}
    given = {"name": "demo", "tool": "demo-tool", "gives": "compiled"}
    inputs = {"model": StepInput(files=files)}
    return Step(**{**given, "parameters": parameters, "inputs": inputs, **changes})


def model_files(directory: Path) -> tuple[ModelFile, ...]:
    return tuple(
        ModelFile(
            path=path.relative_to(directory).as_posix(),
            role="other",
            content=FileRange(path=str(path), offset=0, length=path.stat().st_size),
        )
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    )

"""The demo tool, ready to run: an executor with an environment that all tests share."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from artifact_cache import ArtifactCache
from packager.core.events import EventSink, ignore
from packager.core.image import FileRange
from packager.core.model import ModelFile
from packager.core.ports import Executor
from packager.core.recipe import Step, StepInput, StepOutcome
from packager.core.share import share_dir
from packager.images.blobs import BlobReader
from packager.optimize.steps.local import LocalExecutor
from packager.optimize.steps.runner import RunSettings, StepRunner
from packager.optimize.steps.tools.environments import Environments
from packager.optimize.steps.workspace import Workspace
from tests.support.cache_entries import CHECKPOINT

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


def run_step(
    executor: Executor, cache: ArtifactCache | None, place: Path, step: Step, **how: Any
) -> StepOutcome:
    """Run a step through a cache as a build does, in a workspace below `place`."""
    with Workspace(place / "work") as workspace:
        return StepRunner(executor, lambda: cache, workspace, RunSettings(**how)).run(step)


def checkpoint_step(files: tuple[ModelFile, ...] = (), **changes: Any) -> Step:
    """Return a step that quantizes, whose result has a key."""
    given = {"name": "quantize", "tool": "llmcompressor", "gives": "model", "key": CHECKPOINT}
    inputs = {"model": StepInput(files=files)}
    return Step(**{**given, "inputs": inputs, "env": dict(CHECKPOINT.invocation.env), **changes})

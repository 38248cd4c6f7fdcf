"""Request for a second opinion of a plan, in the tool's own environment."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from packager.core.documents import NotStrict
from packager.core.errors import StepFailed, Unavailable
from packager.core.model import ModelFiles
from packager.core.plan import Plan
from packager.core.ports import Executor
from packager.core.workload import Workload
from packager.estimate.performance.opinion import TOOL, Opinion, ask, read_opinion


class ToolNotInstalled(Unavailable):
    """The tool is not installed, and a plan installs no tools."""

    def __init__(self) -> None:
        super().__init__(
            f"the tool {TOOL!r}, which gives second opinions, is not installed",
            hint=f"packager tools install {TOOL}",
        )


class Workplace(Protocol):
    """Provider of a temporary directory for a step."""

    def directory(self, name: str) -> Path: ...


def check_installed(executor: Executor) -> None:
    """Raise `ToolNotInstalled` before anything is planned."""
    if not executor.find_tool(TOOL).installed:
        raise ToolNotInstalled


def second_opinion(
    plan: Plan,
    model: ModelFiles,
    workload: Workload,
    concurrencies: Sequence[int],
    executor: Executor,
    workplace: AbstractContextManager[Workplace],
) -> Opinion:
    """Run another predictor on a plan; raises `StepFailed` where the tool fails."""
    config = next((file for file in model.files if file.path == "config.json"), None)
    step = ask(plan, workload, concurrencies, config)
    if isinstance(step, Opinion):
        return step
    with workplace as place:
        result = executor.run(step, place.directory(step.name))
    try:
        return read_opinion(step, result.details, result.versions)
    except NotStrict as error:
        raise StepFailed(
            f"{TOOL} answered with something else than an opinion: {error}",
            hint=f"install it anew: `packager tools rm {TOOL}`, then run again",
        ) from error

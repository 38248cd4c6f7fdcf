"""Asking for a second opinion of a plan, in the tool's own environment."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from packager.core.documents import NotStrict
from packager.core.model import ModelFiles
from packager.core.plan import Plan
from packager.core.workload import Workload
from packager.errors import StepFailed, Unavailable
from packager.planning.opinion import TOOL, Opinion, ask, read_opinion
from packager.ports import Executor


class ToolNotInstalled(Unavailable):
    """The tool would have to be installed first, and a plan installs nothing."""

    def __init__(self) -> None:
        super().__init__(
            f"the tool {TOOL!r}, which gives second opinions, is not installed",
            hint=f"packager tools install {TOOL}",
        )


class Workplace(Protocol):
    """Gives a step a directory of its own, for as long as it is open."""

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
    """Ask about a plan; raise `StepFailed` where the tool breaks, never where it knows nothing."""
    config = next((file for file in model.files if file.path == "config.json"), None)
    step = ask(plan, workload, concurrencies, config)
    if isinstance(step, Opinion):
        return step
    with workplace as place:
        result = executor.run(step, place.directory(step.name))
    try:
        return read_opinion(step, result.details, result.versions)
    except NotStrict as error:
        raise StepFailed(f"{TOOL} answered with something else than an opinion: {error}") from error

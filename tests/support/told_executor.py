"""An executor that runs nothing, and gives the results it was told."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from packager.core.recipe import Step, StepResult
from packager.core.tool import Build, ToolFacts
from packager.optimize.steps.dry_run import DryRunExecutor


class ToldExecutor(DryRunExecutor):
    """Its tools are installed, or are not; `answer` gives the result of a step, or raises."""

    def __init__(self, answer: Callable[[Step], StepResult], *, installed: bool = True) -> None:
        super().__init__(self._described)
        self.ran: list[Step] = []
        self._answer = answer
        self._installed = installed

    def prepare(self, name: str, build: Build = "cpu") -> None:
        raise AssertionError("a plan installs nothing")

    def run(self, step: Step, into: Path) -> StepResult:
        self.ran.append(step)
        return self._answer(step)

    def _described(self, name: str, build: Build) -> ToolFacts:
        return ToolFacts(
            name=name, worker="", requirements="", packages={}, installed=self._installed
        )

"""Runs nothing: the executor of `build --dry-run`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from packager.core.recipe import Step, StepResult
from packager.core.tool import ToolFacts


class DryRunExecutor:
    """Knows tools as they are, accepts every step and produces no file."""

    name = "dry_run"

    def __init__(self, find_tool: Callable[[str], ToolFacts]) -> None:
        self.find_tool = find_tool

    def prepare(self, name: str) -> None:
        """Install nothing."""

    def admit(self, step: Step) -> None:
        """Accept every step: another machine may run it."""

    def run(self, step: Step, into: Path) -> StepResult:  # noqa: ARG002
        """Do nothing."""
        return StepResult()

    def capacity(self) -> Mapping[str, float]:
        """Nothing is consumed."""
        return {}

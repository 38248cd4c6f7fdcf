"""The executor of `build --dry-run`: runs no steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from packager.core.recipe import Step, StepResult
from packager.core.tool import Build, ToolFacts


class DryRunExecutor:
    """Executor that finds tools, accepts every step and produces no file."""

    name = "dry_run"

    def __init__(
        self,
        find_tool: Callable[[str, Build], ToolFacts],
        capacity: Callable[[], Mapping[str, float]] = dict,
    ) -> None:
        self._find_tool = find_tool
        self._capacity = capacity

    def find_tool(self, name: str, build: Build = "cpu") -> ToolFacts:
        """Describe the tool as the real executor does."""
        return self._find_tool(name, build)

    def prepare(self, name: str, build: Build = "cpu") -> None:
        """Install nothing."""

    def admit(self, step: Step) -> None:
        """Accept every step: another machine may run it."""

    def run(self, step: Step, into: Path) -> StepResult:  # noqa: ARG002
        """No-op."""
        return StepResult()

    def capacity(self) -> Mapping[str, float]:
        """Return the capacity of the real executor."""
        return self._capacity()

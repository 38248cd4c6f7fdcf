"""Runs nothing: the executor of `build --dry-run`."""

from __future__ import annotations

from collections.abc import Mapping

from packager.core.recipe import Step


class DryRunExecutor:
    """Accepts every step and produces no file."""

    name = "dry_run"

    def run(self, step: Step) -> Mapping[str, str]:  # noqa: ARG002
        """Do nothing."""
        return {}

    def capacity(self) -> Mapping[str, float]:
        """Nothing is consumed."""
        return {}

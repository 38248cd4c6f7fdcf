"""Fixtures of the tests that run steps."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from packager.core.recipe import StepResult
from packager.optimize.steps.tools.environments import Environments
from tests.support.demo_builds import tools_dir as tools_dir
from tests.support.demo_tools import into as into
from tests.support.demo_tools import tools as tools
from tests.support.tool_steps import executor

Run = Callable[..., StepResult]


@pytest.fixture
def run(tmp_path: Path, into: Path, tools: Environments) -> Run:
    """Run a step of the demo tool here, below `tmp_path`, with its result in `into`."""
    return lambda step, **more: executor(tmp_path, tools=tools, **more).run(step, into)

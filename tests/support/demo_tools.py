"""One environment of the demo tool for all tests: making it takes a moment."""

from __future__ import annotations

from pathlib import Path

import pytest

from packager.optimize.steps.tools.environments import Environments
from tests.support.tool_steps import environments


@pytest.fixture(scope="session")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Environments:
    made = environments(tmp_path_factory.mktemp("tools"))
    made.install("demo-tool")
    return made


@pytest.fixture
def into(tmp_path: Path) -> Path:
    place = tmp_path / "into"
    place.mkdir()
    return place

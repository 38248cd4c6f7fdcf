"""Environments that are given pip as files: `ensurepip` compiles it anew, three CPU seconds."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from packager.optimize.steps.tools.definition import ToolDefinition
from packager.optimize.steps.tools.environments import Environments

PACKAGES = Path("lib", f"python{sys.version_info.major}.{sys.version_info.minor}", "site-packages")


@pytest.fixture(scope="session")
def installed_pip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Let `venv` make an environment with pip; return its packages."""
    place = tmp_path_factory.mktemp("pip")
    subprocess.run([sys.executable, "-m", "venv", str(place)], check=True)
    return place / PACKAGES


@pytest.fixture
def real_venv() -> None:
    """Have `venv` install pip, as without these fixtures."""


@pytest.fixture(autouse=True)
def pip_is_copied(
    request: pytest.FixtureRequest, installed_pip: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Make environments without pip, and copy it into them."""
    run = Environments._run

    def run_and_copy(
        self: Environments, tool: ToolDefinition, words: list[str], lock: int
    ) -> bytes:
        if words[:3] != [sys.executable, "-m", "venv"] or "--without-pip" in words:
            return run(self, tool, words, lock)
        said = run(self, tool, [*words[:-1], "--without-pip", words[-1]], lock)
        shutil.copytree(installed_pip, Path(words[-1]) / PACKAGES, dirs_exist_ok=True)
        return said

    if "real_venv" not in request.fixturenames:
        monkeypatch.setattr(Environments, "_run", run_and_copy)

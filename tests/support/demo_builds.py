"""Builds with the demo tools of another package, in places of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.commandline import TINY, Done
from tests.support.tool_steps import OUTSIDE

OPTIONS = ("--model", str(TINY), "--instance", "local", "--base", "scratch")


@pytest.fixture(scope="module")
def tools_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return where the tools of a module's tests are installed: making one takes a moment."""
    return tmp_path_factory.mktemp("tools")


def environment_of(root: Path, tools_dir: Path) -> dict[str, str]:
    """Return the variables of commands whose cache and state lie below `root`."""
    return {
        "PYTHONPATH": str(OUTSIDE),
        "PACKAGER_CACHE": str(root / "cache"),
        "PACKAGER_TOOLS": str(tools_dir),
        "XDG_STATE_HOME": str(root / "state"),
    }


def digest(done: Done) -> str:
    """Return the digest of the image that a build printed."""
    return done.out.strip().rpartition("@")[2]

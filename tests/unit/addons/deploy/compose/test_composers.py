"""`docker compose` as a command: what stops it is explained."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from packager.addons.deploy.compose.composers import CommandComposer
from packager.core.errors import Unavailable


@pytest.mark.parametrize("error", [FileNotFoundError(), subprocess.TimeoutExpired("docker", 1)])
def test_a_command_that_is_gone_or_does_not_end_is_explained(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    limits = []

    def run(*_: Any, timeout: float, **__: Any) -> None:
        limits.append(timeout)
        raise error

    monkeypatch.setattr(subprocess, "run", run)
    with pytest.raises(Unavailable, match=f"docker up` did not end: {type(error).__name__}"):
        CommandComposer(["docker"]).up(Path("none"), "tiny", ["front"])
    assert limits[0] >= 150e9 / 31e6  # bytes of an image, and a second at which it is pulled

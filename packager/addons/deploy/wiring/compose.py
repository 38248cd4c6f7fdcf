"""Deployments by Docker Compose on this machine."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Literal

from packager.addons.deploy.compose.composers import (
    ApiComposer,
    CommandComposer,
    Composer,
    find_compose,
)
from packager.addons.deploy.compose.live import LiveCompose
from packager.cli.run.containers import find_engine
from packager.cli.wiring.settings import state_dir
from packager.core.errors import UsageError
from packager.core.events import ignore

Through = Literal["auto", "compose", "api"]


def compose_projects(
    through: Through = "auto", *, timeout_s: float = 3600.0, say: Callable[[str], None] = ignore
) -> LiveCompose:
    """Return what deploys here: by `docker compose` where it is installed, or by the API."""
    engine = find_engine()
    command = find_compose() if through != "api" else None
    if through == "compose" and command is None:
        raise UsageError(
            "docker compose is not installed", hint="leave --through out: it works without it"
        )
    composer: Composer = CommandComposer(command) if command else ApiComposer(engine)
    folder = state_dir(os.environ) / "deploy" / "compose"
    return LiveCompose(folder, engine, composer, timeout_s=timeout_s, say=say)

"""Services of a warm-up: its fleet."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from packager.addons.fleet.fleets.table import FLEETS, FleetContext
from packager.cli.wiring.caches import cache_dir
from packager.cli.wiring.presence import shared_cache_variables
from packager.cli.wiring.settings import Settings, state_dir

if TYPE_CHECKING:
    from packager.core.warmup import Fleet


def fleet_for(
    name: str,
    plan: Path,
    settings: Settings,
    *,
    steps: str = "local",
    address: str = "",
    at_once: int | None = None,
) -> Fleet:
    """Choose the machines that run a plan; its jobs find caches as this command does."""
    environment = {
        **settings.environment,
        "PACKAGER_CACHE": str(cache_dir(settings)),
        **shared_cache_variables(settings),
    }
    context = FleetContext(
        plan=plan,
        environment=environment,
        log_dir=state_dir(settings.environment) / "logs",
        address=address,
        at_once=at_once,
        options=("--steps", steps),
    )
    return FLEETS.find(name).make(context)

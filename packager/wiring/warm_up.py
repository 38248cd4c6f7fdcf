"""Services of a warm-up: the fleet, and the stores that must hold its results."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from packager.warmup.fleet.table import FLEETS, FleetContext
from packager.wiring.caches import (
    artifacts_dir,
    cache_dir,
    settings_of_cache,
    trust_for,
    work_root,
)
from packager.wiring.settings import Settings, state_dir

if TYPE_CHECKING:
    from artifact_cache.cache import ArtifactCache
    from packager.core.warmup import Fleet
    from packager.steps.presence import Presence


def presence_for(settings: Settings, artifacts: ArtifactCache) -> Presence:
    """Choose the stores in which results of a fleet have to be.

    `artifacts` hashes whatever it gives: what it hands on takes the place of what is there.
    """
    from packager.cache.errors import explained_cache_errors
    from packager.steps.presence import Presence

    asked = settings_of_cache(settings)
    with explained_cache_errors():
        return Presence(
            artifacts,
            asked.shared,
            partial=artifacts_dir(settings) / "partial",
            work_dir=work_root(settings) / "work",
            trust=trust_for(settings),
        )


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
        **told_of_caches(settings),
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


def told_of_caches(settings: Settings) -> dict[str, str]:
    """Return the variables that tell other machines of the shared caches: addresses, no secrets."""
    from packager.steps.presence import without_lease

    asked = settings_of_cache(settings)
    told = {"PACKAGER_CACHE_SHARED": ",".join(map(without_lease, asked.shared))}
    if asked.require_signed:
        told["PACKAGER_CACHE_REQUIRE_SIGNED"] = "1"
    for variable, path in (
        ("PACKAGER_CACHE_TRUSTED_KEYS", asked.trusted_keys),
        ("PACKAGER_CACHE_SIGNING_KEY", asked.signing_key),
    ):
        if path is not None:
            told[variable] = str(path.absolute())
    return told

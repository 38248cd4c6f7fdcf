"""Doers of a warm-up: the machines, and the stores in which their results must be."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from packager import plugins
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
    from packager.adapters.fleet.presence import Presence
    from packager.core.warmup import Fleet


def presence_for(settings: Settings, artifacts: ArtifactCache) -> Presence:
    """Choose the stores in which results of a fleet have to be.

    `artifacts` hashes whatever it gives: what it hands on takes the place of what is there.
    """
    from packager.adapters.cache_errors import explained_cache_errors
    from packager.adapters.fleet.presence import Presence

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
    own: dict[str, Any] = {"address": address}
    if name == "local":
        own = {"log_dir": state_dir(settings.environment) / "logs"}
    fleet: Fleet = plugins.load(plugins.FLEETS, name)(
        plan, environment=environment, at_once=at_once, options=("--steps", steps), **own
    )
    return fleet


def told_of_caches(settings: Settings) -> dict[str, str]:
    """Return the variables that tell other machines of the shared caches: addresses, no secrets."""
    from packager.adapters.fleet.presence import without_lease

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

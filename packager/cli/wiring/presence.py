"""The stores that must hold the results of other machines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from packager.cli.wiring.caches import artifacts_dir, settings_of_cache, trust_for, work_root
from packager.cli.wiring.settings import Settings

if TYPE_CHECKING:
    from artifact_cache.cache import ArtifactCache
    from packager.optimize.steps.presence import Presence


def presence_for(settings: Settings, artifacts: ArtifactCache) -> Presence:
    """Choose the stores in which results of a fleet must be.

    `artifacts` hashes the files that it returns, because they replace those in a store.
    """
    from packager.optimize.cache.errors import explained_cache_errors
    from packager.optimize.steps.presence import Presence

    asked = settings_of_cache(settings)
    with explained_cache_errors():
        return Presence(
            artifacts,
            asked.shared,
            partial=artifacts_dir(settings) / "partial",
            work_dir=work_root(settings) / "work",
            trust=trust_for(settings),
        )


def shared_cache_variables(settings: Settings) -> dict[str, str]:
    """Return variables with the shared caches for other machines: addresses, no secrets."""
    from packager.optimize.steps.presence import without_lease

    asked = settings_of_cache(settings)
    variables = {"PACKAGER_CACHE_SHARED": ",".join(map(without_lease, asked.shared))}
    if asked.require_signed:
        variables["PACKAGER_CACHE_REQUIRE_SIGNED"] = "1"
    for variable, path in (
        ("PACKAGER_CACHE_TRUSTED_KEYS", asked.trusted_keys),
        ("PACKAGER_CACHE_SIGNING_KEY", asked.signing_key),
    ):
        if path is not None:
            variables[variable] = str(path.absolute())
    return variables

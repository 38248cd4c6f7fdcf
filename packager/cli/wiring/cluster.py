"""Steps on the nodes of a cluster: the side of the submitting machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from packager.cli.plugins.contexts import ClusterContext
from packager.cli.wiring.caches import open_artifact_cache, settings_of_cache, signer_for, work_root
from packager.cli.wiring.presence import presence_for, shared_cache_variables
from packager.cli.wiring.settings import Settings
from packager.core.errors import UsageError
from packager.core.version import __version__
from packager.images.blobs import BlobReader

if TYPE_CHECKING:
    from packager.optimize.steps.ray.exchange import FileExchange
    from packager.optimize.steps.tools.environments import Environments


def needs_shared_cache(reason: str, option: str = "--cache-shared ") -> UsageError:
    """Return an error: no shared cache would return the results of steps on other machines."""
    return UsageError(
        f"--executor ray cannot return results: {reason}",
        hint="name a store that this machine and the nodes may write to: "
        f"{option}s3://BUCKET/PREFIX, or dir:/PATH of a directory that all mount",
        code="NeedsSharedCache",
    )


def cluster_context(
    environments: Environments, reader: BlobReader, settings: Settings
) -> ClusterContext:
    """Return the context of an executor on a cluster; refuse a cache that loses results."""
    if why := no_way_back(settings):
        raise needs_shared_cache(why)
    return ClusterContext(
        address=settings.address,
        given=shared_cache_variables(settings),
        version=__version__,
        exchange=cache(lambda: exchange_for(reader, settings)),
        in_image=lambda name: environments.tool(name).file.in_serving_image,
    )


def no_way_back(settings: Settings) -> str:
    """Return why results of steps elsewhere could not come back; "" where they can."""
    from artifact_cache.opening import parse_tier
    from packager.optimize.cache.errors import explained_cache_errors

    if not settings.use_cache:
        return "--no-cache keeps no result"
    with explained_cache_errors():
        policies = {parse_tier(one).policy for one in settings_of_cache(settings).shared}
    if not policies:
        return "no shared cache is named"
    return "the shared cache may only be read" if policies == {"read-only"} else ""


def exchange_for(reader: BlobReader, settings: Settings) -> FileExchange:
    """Choose how inputs of steps reach nodes."""
    from packager.optimize.steps.ray.exchange import FileExchange
    from packager.optimize.steps.workspace import Workspace

    artifacts = open_artifact_cache(settings)

    @contextmanager
    def scratch() -> Iterator[Callable[[str], Path]]:
        with Workspace(work_root(settings) / "work") as workspace:
            yield workspace.directory

    return FileExchange(
        presence_for(settings, artifacts),
        scratch=scratch,
        read=reader.chunks,
        version=__version__,
        signer=signer_for(settings),
    )

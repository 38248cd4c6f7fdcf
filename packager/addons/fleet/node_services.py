"""A node of a cluster that runs steps for another machine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from packager.cli.wiring.builds import services_for
from packager.cli.wiring.caches import open_artifact_cache, work_root
from packager.cli.wiring.presence import presence_for
from packager.cli.wiring.settings import Settings, digests_file
from packager.images.blobs import BlobReader

if TYPE_CHECKING:
    from packager.optimize.steps.ray.exchange import InputFinder
    from packager.optimize.steps.ray.ordered_step import NodeServices


def node_services_for(settings: Settings) -> NodeServices:
    """Return the services of a node that runs a step for another machine."""
    from packager.images.digest_index import DigestIndex
    from packager.optimize.steps.ray.exchange import InputFinder
    from packager.optimize.steps.ray.ordered_step import NodeServices
    from packager.optimize.steps.workspace import Workspace

    artifacts = open_artifact_cache(settings, always_hash=True)

    @contextmanager
    def finder() -> Iterator[InputFinder]:
        with Workspace(work_root(settings) / "work") as workspace:
            yield InputFinder(
                artifacts,
                make_directory=workspace.directory,
                read=BlobReader().chunks,
                index=DigestIndex(digests_file(settings)),
            )

    return NodeServices(
        services=services_for(settings),
        presence=presence_for(settings, artifacts),
        finder=finder,
    )

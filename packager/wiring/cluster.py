"""Steps on the nodes of a cluster: who asks, and who is asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from packager import __version__, plugins
from packager.adapters.blobs import BlobReader
from packager.errors import UsageError
from packager.ports import Executor
from packager.wiring.caches import (
    artifact_cache_for,
    settings_of_cache,
    signer_for,
    work_root,
)
from packager.wiring.settings import Settings, digests_file, log_dir
from packager.wiring.warm_up import presence_for, told_of_caches

if TYPE_CHECKING:
    from packager.adapters.executors.exchange import Exchange, InputFinder
    from packager.adapters.executors.ray import RayExecutor
    from packager.adapters.tools.environments import Environments
    from packager.jobs.ordered_step import NodeTools


class NeedsSharedCache(UsageError):
    """Steps run on other machines, and nothing would bring their results back."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"--executor ray has no way to bring results back: {reason}",
            hint="name a store that this machine and the nodes may write to: "
            "--cache-shared s3://BUCKET/PREFIX, or dir:/PATH of a directory that all mount",
        )


def cluster_executor(
    environments: Environments, reader: BlobReader, settings: Settings
) -> Executor:
    """Choose a Ray cluster to run steps. Refused where results could not come back."""
    from artifact_cache.opening import parse_tier
    from packager.adapters.cache_errors import explained_cache_errors

    if not settings.use_cache:
        raise NeedsSharedCache("--no-cache keeps no result")
    with explained_cache_errors():
        policies = {parse_tier(one).policy for one in settings_of_cache(settings).shared}
    if not policies:
        raise NeedsSharedCache("no shared cache is named")
    if policies == {"read-only"}:
        raise NeedsSharedCache("the shared cache may only be read")
    kind: type[RayExecutor] = plugins.load(plugins.EXECUTORS, "ray")
    executor: Executor = kind(
        address=settings.address,
        environment=settings.environment,
        given=told_of_caches(settings),
        version=__version__,
        exchange=cache(lambda: exchange_for(reader, settings)),
        in_image=lambda name: environments.tool(name).file.in_serving_image,
        log_dir=log_dir(settings),
        on_event=settings.on_event,
        check=settings.check_capacity,
        restart=settings.restart,
    )
    return executor


def exchange_for(reader: BlobReader, settings: Settings) -> Exchange:
    """Choose how inputs of steps reach nodes."""
    from packager.adapters.executors.exchange import Exchange
    from packager.adapters.executors.workspace import Workspace

    artifacts = artifact_cache_for(settings)
    assert artifacts is not None

    @contextmanager
    def scratch() -> Iterator[Callable[[str], Path]]:
        with Workspace(work_root(settings) / "work") as workspace:
            yield workspace.directory

    return Exchange(
        presence_for(settings, artifacts),
        scratch=scratch,
        read=reader.chunks,
        version=__version__,
        signer=signer_for(settings),
    )


def node_tools_for(settings: Settings) -> NodeTools:
    """Choose the doers of a node that runs a step for another machine."""
    from packager.adapters.digest_index import DigestIndex
    from packager.adapters.executors.exchange import InputFinder
    from packager.adapters.executors.workspace import Workspace
    from packager.jobs.ordered_step import NodeTools
    from packager.wiring.builds import services_for

    artifacts = artifact_cache_for(settings, always_hash=True)
    assert artifacts is not None

    @contextmanager
    def finder() -> Iterator[InputFinder]:
        with Workspace(work_root(settings) / "work") as workspace:
            yield InputFinder(
                artifacts,
                make_directory=workspace.directory,
                read=BlobReader().chunks,
                index=DigestIndex(digests_file(settings)),
            )

    return NodeTools(
        services=services_for(settings),
        presence=presence_for(settings, artifacts),
        finder=finder,
    )

"""How steps are run, or foreseen."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

from packager import plugins
from packager.adapters.blobs import BlobReader
from packager.adapters.digest_index import DigestIndex
from packager.adapters.sinks.tee import write_image
from packager.build.services import RunStep
from packager.core.devices import Gpus, gpus_in
from packager.core.image import BaseImage, ImageSpec, RuntimeConfig
from packager.core.recipe import Step, StepForecast
from packager.core.tool import Build, ToolFacts
from packager.errors import PackagerError, UsageError
from packager.planning.job import Market, label_run, stages_here
from packager.ports import Executor
from packager.wiring.caches import settings_of_cache, work_root
from packager.wiring.cluster import cluster_executor
from packager.wiring.settings import EPOCH, Settings, digests_file, log_dir, state_dir

if TYPE_CHECKING:
    from artifact_cache.cache import ArtifactCache
    from packager.adapters.executors.runner import Remember
    from packager.adapters.tools.environments import Environments


@contextmanager
def run_steps(
    settings: Settings,
    executor: Executor,
    artifacts: Callable[[], ArtifactCache | None],
    remember: Remember,
    market: Callable[[], Market],
) -> Iterator[RunStep]:
    """Have steps run, or their results taken from the cache, in a workspace of the build's own."""
    from packager.adapters.executors.runner import StepRunner
    from packager.adapters.executors.workspace import Workspace

    with Workspace(work_root(settings) / "work") as workspace:
        runner = StepRunner(
            executor,
            artifacts,
            workspace,
            on_event=settings.on_event,
            warn=settings.on_warning,
            accept_larger=settings_of_cache(settings).match == "larger",
            retry_failed=settings.cache.retry_failed,
            may_run=lambda step: _may_run(step, settings),
            remember=remember,
            label=lambda step: label_run(step, market()),
            stages=lambda step: stages_here(step, market()),
            locks=settings.locks,
        )
        yield runner.run


def _may_run(step: Step, settings: Settings) -> bool:
    """Return whether a step may run when its result cannot be taken from the cache."""
    match settings.on_miss:
        case "refuse":
            return False
        case "skip-compile":
            return step.gives != "compiled"
    return True


def foresee_step(
    step: Step,
    executor: Executor,
    artifacts: ArtifactCache | None,
    settings: Settings,
    remember: Remember,
) -> StepForecast:
    """Ask what is there; where a miss ends the build or leaves a step out, it can be explained."""
    from packager.adapters.executors.runner import foresee

    return foresee(
        step,
        artifacts,
        executor,
        accept_larger=settings_of_cache(settings).match == "larger",
        remember=remember if settings.on_miss != "run" else None,
    )


def choose_executor(settings: Settings, environments: Environments, reader: BlobReader) -> Executor:
    """Choose who runs steps: nobody where none is to be run."""
    executor: Executor
    if settings.address and settings.executor != "ray":
        raise UsageError(
            f"--address {settings.address!r} is of a Ray cluster, and none runs the steps",
            hint="add --executor ray",
        )
    if settings.dry_run or settings.headers_only:
        find_tool: Callable[[str, Build], ToolFacts] = environments.facts
        if settings.executor == "docker":
            find_tool = _tools_of_engine(environments, settings)
        capacity = _capacity_here(settings)
        if settings.executor == "ray":
            cluster = cluster_executor(environments, reader, settings)
            find_tool, capacity = cluster.find_tool, cluster.capacity
        # Every candidate of a plan asks: nvidia-smi takes a while, and so do locks of megabytes.
        executor = plugins.load(plugins.EXECUTORS, "dry_run")(cache(find_tool), cache(capacity))
        return executor
    if settings.executor == "ray":
        return cluster_executor(environments, reader, settings)
    told: dict[str, Any] = {}
    if settings.executor == "docker":
        told["load_image"] = lambda base: _load_base(base, reader, settings)
    executor = plugins.load(plugins.EXECUTORS, settings.executor)(
        environments,
        **told,
        work_dir=work_root(settings) / "runs",
        log_dir=log_dir(settings),
        read=reader.chunks,
        on_event=settings.on_event,
        check=settings.check_capacity,
        restart=settings.restart,
    )
    return executor


def gpus_here(settings: Settings) -> Gpus:
    """Count the GPUs of this machine that steps may use."""
    from packager.adapters.executors.capacity import machine_capacity

    return gpus_in(machine_capacity(work_root(settings), settings.environment)) or Gpus(count=0)


def _capacity_here(settings: Settings) -> Callable[[], Mapping[str, float]]:
    """Return what asks for this machine's capacity; of the nodes of a fleet nothing is known."""
    if settings.runs_elsewhere:
        return dict

    def capacity() -> Mapping[str, float]:
        from packager.adapters.executors.capacity import machine_capacity

        return machine_capacity(work_root(settings), settings.environment)

    return capacity


def _tools_of_engine(
    environments: Environments, settings: Settings
) -> Callable[[str, Build], ToolFacts]:
    """Find tools as a Docker Engine has them, or as they are here where there is no engine."""
    place = state_dir(settings.environment) / "logs"  # where nothing is run, nothing is written
    engine: Executor = plugins.load(plugins.EXECUTORS, "docker")(
        environments,
        work_dir=place,
        log_dir=place,
        read=BlobReader().chunks,
        on_event=settings.on_event,
    )

    def find_tool(name: str, build: Build) -> ToolFacts:
        try:
            return engine.find_tool(name, build)
        except PackagerError:
            return environments.facts(name, build)

    return find_tool


def _load_base(base: BaseImage, reader: BlobReader, settings: Settings) -> str:
    """Have the Docker Engine hold a base image as it is; give its name there."""
    from packager.adapters.engine import connect_engine

    name = f"packager-base:{base.digest.removeprefix('sha256:')[:12]}"
    if connect_engine().images.list(name):
        return name
    sink = plugins.load(plugins.SINKS, "docker")(
        f"docker:{name}", reader=reader, on_event=settings.on_event
    )
    image = ImageSpec(base=base, layers=base.layers, runtime=RuntimeConfig(), created=EPOCH)
    write_image(
        image,
        [sink],
        reader=reader,
        index=DigestIndex(digests_file(settings)),
        on_event=settings.on_event,
    )
    return name

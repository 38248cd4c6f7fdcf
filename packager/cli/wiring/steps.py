"""Services for running steps, or for checking their cache status."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

from packager.cli.plugins.contexts import ExecutorContext
from packager.cli.plugins.tables import EXECUTORS
from packager.cli.wiring.caches import settings_of_cache, work_root
from packager.cli.wiring.cluster import cluster_context, needs_shared_cache, no_way_back
from packager.cli.wiring.outputs import sink_context, sinks_for
from packager.cli.wiring.registries import registry_clients
from packager.cli.wiring.settings import EPOCH, Settings, digests_file, log_dir, parse_output
from packager.core.devices import Gpus, gpus_in
from packager.core.errors import PackagerError, UsageError
from packager.core.image import BaseImage, ImageSpec, RuntimeConfig
from packager.core.ports import Executor
from packager.core.recipe import CacheStatus, Step
from packager.core.tool import Build, ToolFacts
from packager.estimate.performance.job import Market, label_run, stages_here
from packager.images.blobs import BlobReader
from packager.images.digest_index import DigestIndex
from packager.optimize.steps.services import RunStep

if TYPE_CHECKING:
    from artifact_cache.cache import ArtifactCache
    from packager.optimize.steps.results import ResultChecks
    from packager.optimize.steps.runner import Remember
    from packager.optimize.steps.tools.environments import Environments


@contextmanager
def run_steps(
    settings: Settings,
    executor: Executor,
    artifacts: Callable[[], ArtifactCache | None],
    remember: Remember,
    market: Callable[[], Market],
) -> Iterator[RunStep]:
    """Yield a function that runs steps or takes their cached results, in a workspace."""
    from packager.optimize.steps.runner import RunSettings, StepRunner
    from packager.optimize.steps.workspace import Workspace

    with Workspace(work_root(settings) / "work") as workspace:
        how = RunSettings(
            on_event=settings.on_event,
            warn=settings.on_warning,
            checks=result_checks(),
            accept_larger=settings_of_cache(settings).match == "larger",
            retry_failed=settings.cache.retry_failed,
            may_run=lambda step: _may_run(step, settings),
            remember=remember,
            label=lambda step: label_run(step, market()),
            stages=lambda step: stages_here(step, market()),
            locks=settings.locks,
        )
        yield StepRunner(executor, artifacts, workspace, how).run


def result_checks() -> ResultChecks:
    """Return the checks of results that only the technique understands which describes the step."""
    from packager.optimize.drafts.train.head_files import check_answers, read_training
    from packager.optimize.evaluate.quality import read_quality

    return {"quality": read_quality, "answers": check_answers, "head": read_training}


def _may_run(step: Step, settings: Settings) -> bool:
    """Return whether a step may run when its result cannot be taken from the cache."""
    match settings.on_miss:
        case "refuse":
            return False
        case "skip-compile":
            return step.gives != "compiled"
    return True


def check_cache_of(
    step: Step,
    executor: Executor,
    artifacts: ArtifactCache | None,
    settings: Settings,
    remember: Remember,
) -> CacheStatus:
    """Return a step's cache status; a miss that ends the build or drops the step is recorded."""
    from packager.optimize.steps.runner import check_cache

    return check_cache(
        step,
        artifacts,
        executor,
        accept_larger=settings_of_cache(settings).match == "larger",
        remember=remember if settings.on_miss != "run" else None,
    )


def check_jobs_executor(executor: str, address: str, environment: Mapping[str, str]) -> None:
    """Refuse to make jobs whose steps could not run there; raises `UsageError`.

    Jobs inherit the environment, and have no options of a cache.
    """
    is_cluster = EXECUTORS.find(executor).traits.is_cluster
    _check_address(address, is_cluster=is_cluster)
    if is_cluster and (why := no_way_back(Settings(environment=environment))):
        raise needs_shared_cache(why, "PACKAGER_CACHE_SHARED=")


def _check_address(address: str, *, is_cluster: bool) -> None:
    if address and not is_cluster:
        raise UsageError(
            f"--address {address!r} is of a Ray cluster, and none runs the steps",
            hint="add --executor ray",
        )


def choose_executor(settings: Settings, environments: Environments, reader: BlobReader) -> Executor:
    """Choose the executor of steps; the one of dry runs where no step is to run."""
    row = EXECUTORS.find(settings.executor)
    _check_address(settings.address, is_cluster=row.traits.is_cluster)
    runs_nothing = settings.headers_only
    context = executor_context(settings, environments, reader, runs_nothing=runs_nothing)
    if not runs_nothing:
        return row.make(context)
    if row.traits.has_own_tools:
        context = replace(context, find_tool=_tools_of(row.make(context), environments))
    if row.traits.is_cluster:
        cluster = row.make(context)
        context = replace(context, find_tool=cluster.find_tool, capacity=cluster.capacity)
    # Cached, because every candidate of a plan needs it: nvidia-smi and large locks are slow.
    context = replace(context, find_tool=cache(context.find_tool), capacity=cache(context.capacity))
    return EXECUTORS.find("dry_run").make(context)


def executor_context(
    settings: Settings,
    environments: Environments,
    reader: BlobReader,
    *,
    runs_nothing: bool = False,
) -> ExecutorContext:
    """Return the context of a run's executor; opens no cache where no step runs."""
    return ExecutorContext(
        environments=environments,
        work_dir=log_dir(settings) if runs_nothing else work_root(settings) / "runs",
        log_dir=log_dir(settings),
        read=reader.chunks,
        on_event=settings.on_event,
        check=settings.check_capacity,
        restart=settings.restart,
        environment=settings.environment,
        load_image=lambda base: _load_base(base, reader, settings),
        cluster=lambda: cluster_context(environments, reader, settings),
        find_tool=environments.facts,
        capacity=_capacity_here(settings),
    )


def gpus_here(settings: Settings) -> Gpus:
    """Count the GPUs of this machine that steps may use."""
    from packager.optimize.steps.capacity import machine_capacity

    return gpus_in(machine_capacity(work_root(settings), settings.environment)) or Gpus(count=0)


def _capacity_here(settings: Settings) -> Callable[[], Mapping[str, float]]:
    """Return a function that measures this machine's capacity; a fleet's nodes are unknown."""
    if settings.runs_elsewhere:
        return dict

    def capacity() -> Mapping[str, float]:
        from packager.optimize.steps.capacity import machine_capacity

        return machine_capacity(work_root(settings), settings.environment)

    return capacity


def _tools_of(executor: Executor, environments: Environments) -> Callable[[str, Build], ToolFacts]:
    """Return a look-up of an executor's tools, or of this machine's where it is out of reach."""

    def find_tool(name: str, build: Build) -> ToolFacts:
        try:
            return executor.find_tool(name, build)
        except PackagerError:
            return environments.facts(name, build)

    return find_tool


def _load_base(base: BaseImage, reader: BlobReader, settings: Settings) -> str:
    """Load a base image into the Docker Engine; return its name there."""
    from packager.images.docker_engine import connect_engine
    from packager.images.tee import write_image

    name = f"packager-base:{base.digest.removeprefix('sha256:')[:12]}"
    if connect_engine().images.list(name):
        return name
    context = sink_context(settings, reader, registry_clients(settings))
    [sink] = sinks_for((parse_output(f"docker:{name}"),), replace(context, sparse_base=False))
    image = ImageSpec(base=base, layers=base.layers, runtime=RuntimeConfig(), created=EPOCH)
    write_image(
        image,
        [sink],
        reader=reader,
        index=DigestIndex(digests_file(settings)),
        on_event=settings.on_event,
    )
    return name

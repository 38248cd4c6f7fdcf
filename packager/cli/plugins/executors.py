"""Executors of steps: where work runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from packager.cli.plugins.rows import ExecutorRow, ExecutorTraits, Table

if TYPE_CHECKING:
    from packager.cli.plugins.contexts import ExecutorContext
    from packager.core.ports import Executor


def _local_executor(context: ExecutorContext) -> Executor:
    from packager.optimize.steps.local import LocalExecutor

    return LocalExecutor(
        context.environments,
        work_dir=context.work_dir,
        log_dir=context.log_dir,
        read=context.read,
        on_event=context.on_event,
        check=context.check,
        restart=context.restart,
    )


def _docker_executor(context: ExecutorContext) -> Executor:
    from packager.optimize.steps.docker import DockerExecutor

    return DockerExecutor(
        context.environments,
        work_dir=context.work_dir,
        log_dir=context.log_dir,
        read=context.read,
        on_event=context.on_event,
        check=context.check,
        restart=context.restart,
        load_image=context.load_image,
    )


def _ray_executor(context: ExecutorContext) -> Executor:
    from packager.optimize.steps.ray.executor import RayExecutor, RaySettings

    cluster = context.cluster()
    settings = RaySettings(
        address=cluster.address,
        environment=context.environment,
        given=cluster.given,
        version=cluster.version,
        exchange=cluster.exchange,
        in_image=cluster.in_image,
        log_dir=context.log_dir,
        on_event=context.on_event,
        check=context.check,
        restart=context.restart,
    )
    return RayExecutor(settings)


def _dry_run_executor(context: ExecutorContext) -> Executor:
    from packager.optimize.steps.dry_run import DryRunExecutor

    return DryRunExecutor(context.find_tool, context.capacity)


EXECUTORS: Table[ExecutorRow] = Table(
    "executor",
    {
        "local": ExecutorRow("a subprocess here", _local_executor),
        "docker": ExecutorRow(
            "a container here", _docker_executor, ExecutorTraits(has_own_tools=True)
        ),
        "ray": ExecutorRow(
            "a node of a Ray cluster", _ray_executor, ExecutorTraits(is_cluster=True)
        ),
        "dry_run": ExecutorRow("names the steps only", _dry_run_executor),
    },
)

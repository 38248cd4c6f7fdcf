"""`packager tools`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from packager.cli.lazy import ShortNames
from packager.cli.progress import progress_options, shown_progress
from packager.cli.shared_options import format_option
from packager.cli.terminal import print_json, print_line, print_lines, print_result, warn
from packager.cli.wiring.settings import Settings
from packager.cli.wiring.steps import gpus_here
from packager.cli.wiring.techniques import environments_for, tool_names
from packager.core.errors import NotFound
from packager.core.events import StagesEvent
from packager.core.tool import Build
from packager.optimize.steps.tools.report import ToolBuild, ToolRow, tool_documents, tools_report

if TYPE_CHECKING:
    from packager.optimize.steps.tools.environments import Environments, Installed


@click.group(cls=ShortNames)
def tools() -> None:
    """Install, list and remove the tools that steps run.

    A tool has an environment of its own, made once; builds make it when they need it.
    """


build_option = click.option(
    "--build",
    type=click.Choice(("cpu", "cuda")),
    default="cpu",
    show_default=True,
    help="Build of torch: cuda is for steps on GPUs.",
)


@tools.command("ls")
@format_option
def list_(output_format: str) -> None:
    """List the tools, which environments they have, and which of these steps here take.

    \b
    packager tools ls
    """
    settings = Settings()
    environments = environments_for(settings)
    installed = environments.installed()
    rows = [_row(environments, name, installed) for name in tool_names(warn)]
    gpus = gpus_here(settings)
    print_result(output_format, tool_documents(rows, gpus), tools_report(rows, gpus))


def _row(environments: Environments, name: str, installed: Iterable[Installed]) -> ToolRow:
    tool = environments.tool(name)
    lender = tool.lender.name if tool.lender else ""
    mine = [found for found in installed if found.tool == tool.provider.name]
    builds = []
    for build in () if tool.file.in_serving_image else tool.builds:
        made = [found for found in mine if found.build == build]
        variant = environments.tool(name, build)
        builds.append(
            ToolBuild(
                build=build,
                state=_state(made),
                bytes=0 if lender else sum(found.bytes for found in made),
                disk_bytes=int(variant.disk_gb * 1e9),
                torch=environments.facts(name, build).packages.get("torch", ""),
            )
        )
    return ToolRow(name=name, what=tool.file.summary, lender=lender, builds=tuple(builds))


def _state(made: list[Installed]) -> str:
    current = any(found.current for found in made)
    if any(found.hashes == "not verified" for found in made):
        return "installed, not verified" if current else "outdated or not verified"
    return "installed" if current else "outdated" if made else "not installed"


@tools.command()
@click.argument("name")
@click.option(
    "--allow-unhashed",
    is_flag=True,
    help="Take packages whose hashes are not those of the tool's lock. Builds use such an "
    "environment only with PACKAGER_ALLOW_UNHASHED=1 set.",
)
@build_option
@progress_options
def install(name: str, allow_unhashed: bool, build: Build, progress: str, quiet: bool) -> None:
    """Install the environment of a tool; print its Python.

    Your pip or uv settings decide where packages come from; the tool's lock decides which files
    are taken.

    \b
    packager tools install llmcompressor
    """
    from packager.optimize.steps.tools.installers import ALLOW_UNHASHED

    with shown_progress(progress, quiet=quiet) as on_event:
        settings = Settings(on_event=on_event)
        if allow_unhashed:
            environment = {**settings.environment, ALLOW_UNHASHED: "1"}
            settings = replace(settings, environment=environment)
        environments = environments_for(settings)
        on_event(StagesEvent(stages=(f"tool {environments.tool(name).provider.name}",)))
        python = environments.install(name, build)
    print_line(str(python))


@tools.command("rm")
@click.argument("name")
def remove(name: str) -> None:
    """Remove every environment of a tool, outdated ones too; print where they were.

    \b
    packager tools rm llmcompressor
    """
    removed = environments_for(Settings()).remove(name)
    if not removed:
        raise NotFound(
            f"tool {name!r} has no environment", hint="`packager tools ls` shows what there is"
        )
    print_lines(str(place) for place in removed)


@tools.command()
@click.argument("name")
@build_option
def path(name: str, build: Build) -> None:
    """Print where the environment of a tool is, or would be.

    \b
    packager tools path llmcompressor
    """
    print_line(str(environments_for(Settings()).place(name, build)))


@tools.command()
def schema() -> None:
    """Print the JSON schemas of what a worker reads and writes.

    \b
    packager tools schema
    """
    from pydantic import BaseModel

    from packager.core.worker import WorkerEvent, WorkerResult, WorkerSpec

    documents: dict[str, type[BaseModel]] = {
        "spec": WorkerSpec,
        "event": WorkerEvent,
        "result": WorkerResult,
    }
    print_json({name: one.model_json_schema() for name, one in documents.items()})

"""`packager tools`."""

from __future__ import annotations

from dataclasses import replace

import click

from packager import wiring
from packager.cli.options import format_option
from packager.cli.progress import progress_options, shown_progress
from packager.cli.terminal import print_json, print_line, print_lines
from packager.core.units import decimal
from packager.errors import NotFound
from packager.reports.text import table_lines


@click.group()
def tools() -> None:
    """Install, list and remove the tools that steps run.

    A tool has an environment of its own, made once; builds make it when they need it.
    """


@tools.command("list")
@format_option
def list_(output_format: str) -> None:
    """List the tools, and which of them have an environment."""
    environments = wiring.environments_for(wiring.Settings())
    installed = environments.installed()
    records = []
    for name in wiring.tool_names():
        tool = environments.tool(name)
        mine = [found for found in installed if found.tool == tool.provider.name]
        current = any(found.current for found in mine)
        state = "installed" if current else "outdated" if mine else "not installed"
        if any(found.hashes == "not verified" for found in mine):
            state = "installed, not verified" if current else "outdated or not verified"
        if tool.file.in_serving_image:
            state = "in the serving image"
        # A borrowed environment takes no space of its own.
        size = 0 if tool.lender else sum(found.bytes for found in mine)
        records.append({"name": name, "state": state, "bytes": size, "what": tool.file.summary})
    if output_format == "json":
        print_json(records)
        return
    rows = [
        [str(one["name"]), str(one["state"]), decimal(int(str(one["bytes"]))), str(one["what"])]
        for one in records
    ]
    print_lines(table_lines(("name", "state", "size", "what"), rows))


@tools.command()
@click.argument("name")
@click.option(
    "--allow-unhashed",
    is_flag=True,
    help="Take packages whose hashes are not those of the tool's lock. Builds use such an "
    "environment only with PACKAGER_ALLOW_UNHASHED=1 set.",
)
@progress_options
def install(name: str, allow_unhashed: bool, progress: str, quiet: bool) -> None:
    """Make the environment of a tool; print its Python.

    Your pip or uv settings decide where packages come from; the tool's lock decides which files
    are taken.
    """
    from packager.adapters.tools.environments import ALLOW_UNHASHED

    with shown_progress(progress, quiet=quiet) as on_event:
        settings = wiring.Settings(on_event=on_event)
        if allow_unhashed:
            environment = {**settings.environment, ALLOW_UNHASHED: "1"}
            settings = replace(settings, environment=environment)
        python = wiring.environments_for(settings).install(name)
    print_line(str(python))


@tools.command()
@click.argument("name")
def remove(name: str) -> None:
    """Remove every environment of a tool, outdated ones too; print where they were."""
    removed = wiring.environments_for(wiring.Settings()).remove(name)
    if not removed:
        raise NotFound(
            f"tool {name!r} has no environment", hint="`packager tools list` shows what there is"
        )
    print_lines(str(place) for place in removed)


@tools.command()
@click.argument("name")
def path(name: str) -> None:
    """Print where the environment of a tool is, or would be."""
    print_line(str(wiring.environments_for(wiring.Settings()).place(name)))


@tools.command()
def schema() -> None:
    """Print the JSON schemas of what a worker reads and writes."""
    from pydantic import BaseModel

    from packager.core.worker import WorkerEvent, WorkerResult, WorkerSpec

    documents: dict[str, type[BaseModel]] = {
        "spec": WorkerSpec,
        "event": WorkerEvent,
        "result": WorkerResult,
    }
    print_json({name: one.model_json_schema() for name, one in documents.items()})

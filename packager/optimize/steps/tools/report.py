"""The tools, each with the builds of torch that it has environments for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from packager.core.devices import SMALL_BYTES, Gpus
from packager.core.reports.report import Lines, Report, Words, one_section, plain_table
from packager.core.tool import Build
from packager.core.units import decimal


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolBuild:
    """One environment of a tool, made or not."""

    build: Build
    state: str  # `installed`, `not installed`, `outdated`, …
    bytes: int  # that it takes
    disk_bytes: int  # that installing it needs
    torch: str = ""  # the version that it has, or would have


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolRow:
    """One tool."""

    name: str
    what: str
    lender: str  # whose environment it runs in; "" where that is its own
    builds: tuple[ToolBuild, ...]  # the first is for processors; none in the serving image


def tools_report(rows: Iterable[ToolRow], gpus: Gpus) -> Report:
    """Return a row for each environment, and which of them steps here take."""
    header = ("name", "torch for", "state", "size", "what")
    table = plain_table(header, (row for one in rows for row in _rows(one)))
    chosen = Words(chosen_build(gpus), is_soft=False)
    return one_section("Tools", table, Lines(("",)), chosen)


def tool_documents(rows: Iterable[ToolRow], gpus: Gpus) -> list[dict[str, Any]]:
    """Return the same as JSON; `state` and `bytes` are of all builds together."""
    return [
        {
            "name": one.name,
            "state": _state(one),
            "bytes": sum(build.bytes for build in one.builds),
            "what": one.what,
            "environment": one.lender or one.name,
            "builds": [
                {
                    "build": build.build,
                    "state": build.state,
                    "bytes": build.bytes,
                    "disk_bytes": build.disk_bytes,
                    "torch": build.torch,
                    "used_here": build.build == "cpu" or gpus.count > 0,
                }
                for build in one.builds
            ],
        }
        for one in rows
    ]


def chosen_build(gpus: Gpus) -> str:
    """Report which builds of torch steps on this machine run with, and why."""
    if not gpus.count:
        return "steps here run with torch for cpu: no GPU is here for them"
    memory = f" of {decimal(gpus.bytes)}" if gpus.bytes else ""
    return (
        f"steps here run with torch for cuda on the {gpus.count} GPUs{memory} where those help: "
        f"models of {decimal(SMALL_BYTES)} and more; with --gpus 0, and else, for cpu"
    )


def _rows(one: ToolRow) -> Iterator[tuple[str, ...]]:
    if not one.builds:
        yield one.name, "", "in the serving image", decimal(0), one.what
    for number, build in enumerate(one.builds):
        # A shared environment takes no space of its own.
        size = decimal(build.bytes)
        if build.state == "not installed" and not one.lender:
            size = f"needs {decimal(build.disk_bytes)}"
        name, what = (one.name, one.what) if not number else ("", "")
        yield name, build.build if len(one.builds) > 1 else "any", build.state, size, what


def _state(one: ToolRow) -> str:
    if not one.builds:
        return "in the serving image"
    installed = [build.state for build in one.builds if build.state != "not installed"]
    return installed[0] if installed else "not installed"

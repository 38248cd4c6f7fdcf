"""`packager list`."""

from __future__ import annotations

from typing import Any

import click

from packager import plugins
from packager.catalog.containers import containers
from packager.catalog.instances import instances
from packager.cli.options import format_option
from packager.core.units import gib
from packager.reports.text import json_text, table_lines

_TABLES = {
    "families": plugins.FAMILIES,
    "sources": plugins.SOURCES,
    "bases": plugins.BASES,
    "outputs": plugins.SINKS,
    "executors": plugins.EXECUTORS,
}


@click.command("list")
@click.argument("what", type=click.Choice(("instances", "containers", *_TABLES)))
@format_option
def list_(what: str, output_format: str) -> None:
    """List what packager knows: instances, containers, or the plug-ins of a kind."""
    rows = _rows(what)
    if output_format == "json":
        click.echo(json_text(rows))
        return
    header = list(rows[0]) if rows else []
    cells = [[str(value) for value in row.values()] for row in rows]
    click.echo("\n".join(table_lines(header, cells)))


def _rows(what: str) -> list[dict[str, Any]]:
    if what == "instances":
        return [
            {
                "instance": found.name,
                "device": found.device_name,
                "devices": found.devices,
                "memory": gib(found.device_bytes),
                "usd_hour": found.price_usd_hour or "",
                "formats": " ".join(sorted(found.formats)),
            }
            for found in instances()
        ]
    if what == "containers":
        return [
            {
                "family": found.family,
                "device": found.kind,
                "engine": f"{found.engine} {found.engine_version}",
                "version": found.version,
                "base": found.default_base,
            }
            for found in containers()
        ]
    return [{"name": name, "what": found.summary} for name, found in _TABLES[what].items()]

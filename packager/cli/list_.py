"""`packager list`."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click

from packager import plugins
from packager.adapters.user_catalog import own_rows
from packager.catalog import listing
from packager.catalog.listing import Filter, Record
from packager.cli.options import catalog_option, format_option_of
from packager.cli.terminal import print_json, print_lines, print_text
from packager.core.own import OwnRows
from packager.core.text import escape
from packager.errors import UsageError
from packager.reports.text import table_lines

_PLUGINS: Mapping[str, Callable[[], Mapping[str, plugins.Plugin]]] = {
    "families": lambda: plugins.FAMILIES,
    "sources": lambda: plugins.SOURCES,
    "bases": lambda: plugins.BASES,
    "outputs": lambda: plugins.SINKS,
    "executors": lambda: plugins.EXECUTORS,
    "quantizers": plugins.quantizers,
    "compilers": plugins.compilers,
}

_CATALOG: Mapping[str, Callable[[OwnRows, Filter], list[Record]]] = {
    "instances": listing.list_instances,
    "accelerators": listing.list_accelerators,
    "models": listing.list_models,
    "architectures": listing.list_architectures,
    "drafts": listing.list_drafts,
    "containers": listing.list_containers,
    "techniques": listing.list_techniques,
    "compatibility": listing.list_compatibility,
    "prices": listing.list_prices,
    "registries": listing.list_registries,
}

# What fits on a terminal; JSON and CSV have every field.
_COLUMNS = {
    "instances": ("instance", "device", "devices", "device_gib", "link", "usd_hour", "formats"),
    "accelerators": ("name", "spelled", "usable_gib", "bandwidth_gb_s", "tflops", "link_gb_s"),
    "models": ("model", "architecture", "quantization", "speculative", "eagle", "drafts"),
    "architectures": ("architecture", "kind", "planned", "vllm", "sglang"),
    "drafts": ("model", "draft", "license", "note"),
    "containers": (
        "family",
        "variant",
        "device",
        "engine_version",
        "version",
        "cuda",
        "least_driver",
    ),
    "techniques": ("name", "kind", "gives", "families", "devices"),
    "compatibility": ("severity", "code", "reason"),
    "prices": ("instance", "region", "usd_hour", "basis", "date"),
    "registries": ("registry", "hosts", "layer_mib", "upload_minutes", "chunk_mib", "forms"),
}

# Filters that would change nothing are refused: the user meant something by them.
_FILTERS = {
    "instances": {"family", "device", "min_memory", "region"},
    "accelerators": {"device"},
    "models": set(),
    "architectures": set(),
    "drafts": set(),
    "containers": {"family", "device"},
    "techniques": {"family", "device"},
    "compatibility": {"family", "device"},
    "prices": {"region"},
    "registries": set(),
}


@click.command("list")
@click.argument("what", type=click.Choice((*_CATALOG, *_PLUGINS)))
@click.argument("text", default="")
@click.option("--family", type=click.Choice(("vllm", "lmi", "tgi", "sglang", "neuron")))
@click.option("--device", type=click.Choice(("nvidia", "amd", "neuron", "cpu")))
@click.option("--min-memory", type=click.FloatRange(0), metavar="GIB", help="Of all devices.")
@click.option("--region", metavar="REGION", help="AWS region of the prices.")
@catalog_option
@format_option_of("json", "csv")
def list_(
    what: str, text: str, output_format: str, catalog_file: Path | None, **filters: Any
) -> None:
    """List what packager knows, or the plug-ins of a kind; TEXT keeps rows that have it.

    \b
    packager list instances --device nvidia --min-memory 300
    packager list containers lmi28 --format json
    """
    given = {name for name, value in filters.items() if value is not None}
    stray = sorted(given - _FILTERS.get(what, set()))
    if stray:
        option = "--" + stray[0].replace("_", "-")
        usable = ", ".join("--" + name.replace("_", "-") for name in sorted(_FILTERS.get(what, ())))
        raise UsageError(
            f"{option} does not filter {what}",
            hint=f"{what} can be filtered by TEXT{', ' + usable if usable else ''}",
        )
    records = _records(what, catalog_file, filters, text)
    if output_format == "json":
        print_json(records)
    elif output_format == "csv":
        print_text(_csv(records))
    else:
        print_lines(_table(what, records))


def _records(
    what: str, catalog_file: Path | None, filters: Mapping[str, Any], text: str
) -> list[Record]:
    if what in _PLUGINS:
        records = [
            {"name": name, "what": found.summary} for name, found in _PLUGINS[what]().items()
        ]
    else:
        wanted = Filter(
            family=filters["family"],
            device=filters["device"],
            min_memory_gib=filters["min_memory"],
            region=filters["region"],
        )
        records = _CATALOG[what](own_rows(catalog_file, os.environ), wanted)
    return listing.with_text(records, text)


def _table(what: str, records: list[Record]) -> list[str]:
    if not records:
        return ["nothing of that kind"]
    columns = _COLUMNS.get(what, tuple(records[0]))
    rows = [[listing.shown(record[name]) for name in columns] for record in records]
    return table_lines(columns, rows)


def _csv(records: list[Record]) -> str:
    text = io.StringIO()
    if records:
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(records[0])
        writer.writerows(
            [escape(listing.shown(value)) for value in record.values()] for record in records
        )
    return text.getvalue()

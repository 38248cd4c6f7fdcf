"""`packager list`."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click

from packager.catalog import listing
from packager.catalog.listing import Filter, Record
from packager.catalog.served_architectures import listing_engines
from packager.catalog.user_catalog import user_rows_in
from packager.cli.choices import NameChoice
from packager.cli.field_options import SizeRange
from packager.cli.plugins.tables import FAMILIES, TABLES
from packager.cli.shared_options import catalog_option, format_option_of
from packager.cli.terminal import print_result, print_text
from packager.core.errors import UsageError
from packager.core.facts import ContainerFacts
from packager.core.reports.report import Report, Words, one_section, plain_table
from packager.core.text import escape
from packager.core.user_catalog import UserCatalog
from packager.engines.load_formats import list_load_formats

LICENCES = "licences"
_CATALOG: Mapping[str, Callable[[UserCatalog, Filter], list[Record]]] = {
    "instances": listing.list_instances,
    "accelerators": listing.list_accelerators,
    "models": listing.list_models,
    "architectures": listing.list_architectures,
    "served": lambda own, wanted: listing.list_served(own, wanted, _pools),
    "drafts": listing.list_drafts,
    "containers": listing.list_containers,
    "techniques": listing.list_techniques,
    "compatibility": listing.list_compatibility,
    "prices": listing.list_prices,
    "registries": listing.list_registries,
    "load-formats": list_load_formats,
}

# What fits on a terminal; JSON and CSV have every field.
_COLUMNS = {
    "instances": ("instance", "device", "devices", "device_gib", "link", "usd_hour", "formats"),
    "accelerators": ("name", "spelled", "usable_gib", "bandwidth_gb_s", "tflops", "link_gb_s"),
    "models": ("model", "architecture", "quantization", "speculative", "eagle", "drafts"),
    "architectures": ("architecture", "kind", "planned", *listing_engines()),
    "served": ("kind", "classes", *listing.DEVICES),
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
    "techniques": ("name", "kind", "streams", "gives", "families", "devices"),
    "compatibility": ("severity", "code", "reason"),
    "prices": ("instance", "region", "usd_hour", "basis", "date"),
    "load-formats": (
        *("engine", "format", "since", "devices", "threads", "in_images_since", "auto_from_gb"),
    ),
    "registries": ("registry", "hosts", "layer_mib", "upload_minutes", "chunk_mib", "forms"),
}

# Refuse filters without an effect: the user expects one.
_FILTERS = {
    "instances": {"family", "device", "min_memory", "region"},
    "accelerators": {"device"},
    "models": set(),
    "architectures": set(),
    "served": set(),
    "drafts": set(),
    "containers": {"family", "device"},
    "techniques": {"family", "device"},
    "compatibility": {"family", "device"},
    "prices": {"region"},
    "registries": set(),
    "load-formats": {"device"},
}


def _pools(image: ContainerFacts) -> bool:
    """Return whether a family's image serves models that give vectors or scores."""
    return bool(FAMILIES.find(image.family).make().traits(image).pools)


@click.command("list")
@click.argument("what", type=click.Choice((*_CATALOG, *TABLES, LICENCES)))
@click.argument("text", default="")
@click.option("--family", type=NameChoice(lambda: FAMILIES), help="Only containers of this family.")
@click.option(
    "--device",
    type=click.Choice(("nvidia", "amd", "neuron", "cpu")),
    help="Only rows for this kind of device.",
)
@click.option(
    "--min-memory",
    type=SizeRange(1 << 30, 0, 1_000_000),
    metavar="SIZE",
    help="Minimum memory of all devices together, such as 80GiB.",
)
@click.option("--region", metavar="REGION", help="AWS region of the prices.")
@catalog_option
@format_option_of("json", "csv")
def list_(
    what: str, text: str, output_format: str, catalog_file: Path | None, **filters: Any
) -> None:
    """List what packager knows, or the plug-ins of a kind; TEXT keeps rows that have it.

    `licences IMAGE` lists what the SBOM of an image says of each part's licence.

    \b
    packager list instances --device nvidia --min-memory 300GiB
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
    if output_format == "csv":
        print_text(_csv(records))
    else:
        print_result(output_format, records, _report(what, records))


def _records(
    what: str, catalog_file: Path | None, filters: Mapping[str, Any], text: str
) -> list[Record]:
    if what == LICENCES:
        return _licences(text)
    if what in TABLES:
        records = [
            {"name": name, "what": summary} for name, summary in TABLES[what].summaries().items()
        ]
    else:
        wanted = Filter(
            family=filters["family"],
            device=filters["device"],
            min_memory_gib=filters["min_memory"],
            region=filters["region"],
        )
        records = _CATALOG[what](user_rows_in(catalog_file, os.environ), wanted)
    return listing.with_text(records, text)


def _licences(image: str) -> list[Record]:
    """Return the licence of each part of an image; "" where nobody says."""
    from packager.cli.commands.sbom import read_sbom
    from packager.cli.wiring.settings import Settings, parse_output
    from packager.core.image import Platform
    from packager.images.sbom.licences import stated_licences

    if not image:
        raise UsageError("no image is named", hint="packager list licences oci:out")
    document = read_sbom(parse_output(image), Platform(), Settings())
    stated = list(stated_licences(document))
    named = {ref for ref, _ in stated}
    silent = [
        str(one["bom-ref"])
        for one in document.get("components", ())
        if one["bom-ref"] not in named and one["type"] in ("machine-learning-model", "data")
    ]
    rows = [*stated, *((ref, "") for ref in silent)]
    return [{"part": ref, "licence": word} for ref, word in sorted(rows)]


def _report(what: str, records: list[Record]) -> Report:
    if not records:
        return one_section(what, Words("nothing of that kind", is_soft=False))
    columns = _COLUMNS.get(what, tuple(records[0]))
    rows = ([listing.shown(record[name]) for name in columns] for record in records)
    return one_section(what, plain_table(columns, rows))


def _csv(records: list[Record]) -> str:
    text = io.StringIO()
    if records:
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(records[0])
        writer.writerows(
            [escape(listing.shown(value)) for value in record.values()] for record in records
        )
    return text.getvalue()

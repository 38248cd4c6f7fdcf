"""`packager inspect`."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from packager.cli.plugins.tables import SECTIONS
from packager.cli.shared_options import format_option_of, image_options, take_rate
from packager.cli.terminal import print_result
from packager.cli.wiring.images import image_services_for
from packager.cli.wiring.settings import Settings, parse_output, state_dir
from packager.core.errors import UsageError
from packager.core.image import Platform
from packager.core.record import BuildRecord
from packager.core.reports.report import Pair, Pairs, Section
from packager.core.units import decimal, parse_rate
from packager.images.pull_hints import DISKS, Disk, PullHints, make_hints
from packager.images.pull_report import hints_document, hints_report, pulled_layers
from packager.images.report import inspect_document, inspect_report
from packager.images.rootfs.report import files_document, files_report
from packager.images.sbom.reading import (
    attached_sbom,
    incomplete_parts,
    parse_sbom,
    sbom_line,
)
from packager.images.stored import StoredImage
from packager.pipeline.attached_record import attached_records
from packager.pipeline.records import find_record, load_record, record_document

_BANDWIDTH = parse_rate("10Gbit")


@click.command()
@click.argument("image")
@click.option(
    "--shared-with",
    multiple=True,
    metavar="IMAGE",
    help="Mark layers that this image has too. Repeatable.",
)
@click.option(
    "--files",
    metavar="DIR",
    help="List the files below DIR as a container sees them; `/` for all.",
)
@click.option(
    "--pull-hints",
    is_flag=True,
    help="Show with which settings nodes pull it fastest, and how long that takes.",
)
@click.option(
    "--bandwidth",
    callback=take_rate,
    metavar="RATE",
    help="Of --pull-hints: the network of a node.  [default: 10Gbit]",
)
@click.option(
    "--disk",
    callback=take_rate,
    metavar="RATE",
    help="Of --pull-hints: the disk of a node; by default a table of three.",
)
@image_options
@format_option_of("json", "html")
def inspect(
    image: str,
    shared_with: tuple[str, ...],
    files: str | None,
    pull_hints: bool,
    bandwidth: float | None,
    disk: float | None,
    platform: Platform,
    insecure_registries: tuple[str, ...],
    ca_file: Path | None,
    output_format: str,
) -> None:
    """Show how IMAGE was made, and its layers by role.

    IMAGE is HOST/REPOSITORY:TAG, oci:DIR[:TAG] or docker:NAME.  No layer is read
    but for --files.
    A build record that is attached to the image is shown as what somebody claims.
    Of a registry's image it also says which layers builds on this machine have
    met in the registry's other repositories; of one that was built here, what
    `packager bench` measured of it, cold starts beside predicted ones, and what
    its last deployment answered.

    With --pull-hints it says how nodes pull the image fastest: settings of
    containerd, SOCI and the kubelet for its layers, and the predicted time.

    With --files it lists what a container sees.  That reads headers of plain
    layers, and compressed layers once: what they hold is kept in the cache
    directory.

    \b
    packager inspect oci:out
    packager inspect oci:out --pull-hints --bandwidth 25Gbit --disk 1000MiB
    packager inspect oci:out --files /opt/packager
    """
    if not pull_hints and (bandwidth or disk):
        given = "--bandwidth" if bandwidth else "--disk"
        raise UsageError(f"{given} says nothing without --pull-hints", hint="add --pull-hints")
    tools = image_services_for(Settings(insecure_registries=insecure_registries, ca_file=ca_file))
    target = parse_output(image)
    opened = tools.open(target, platform)
    if pull_hints:
        hints = _hints_of(opened.image, bandwidth, disk)
        print_result(output_format, hints_document(hints), hints_report(hints))
        return
    if files is not None:
        about = (opened.image.reference, tools.files(opened), files)
        print_result(output_format, files_document(*about), files_report(*about))
        return
    found, records = opened.image, attached_records(opened)
    others = [tools.open(parse_output(other), platform).image for other in shared_with]
    seen = tools.seen(target, [layer.descriptor.digest for layer in found.layers])
    record = _record_of(found)
    document = inspect_document(found, others, seen)
    document["attached_records"] = [json.loads(record_document(record)) for record in records]
    document |= _measured_document(record)
    listed = attached_sbom(opened)
    parts = parse_sbom(listed, image) if listed else None
    document["sbom"] = {"incomplete": incomplete_parts(parts)} if parts else None
    later = (
        *_attached(records, sbom_line(parts) if parts else ""),
        *(_measured(record) if record is not None else ()),
    )
    print_result(output_format, document, inspect_report(found, others, seen, later))


def _measured_document(record: BuildRecord | None) -> dict[str, Any]:
    """Return the measurements made of an image after its build."""
    later = (record.bench, record.starts, record.smoke) if record else ()
    return {
        name: found.model_dump(mode="json", exclude_none=True)
        for name, found in zip(("bench", "starts", "smoke"), later, strict=False)
        if found is not None
    }


def _measured(record: BuildRecord) -> Iterator[Section]:
    for name in SECTIONS:
        if found := SECTIONS.find(name).make(record):
            yield replace(found, key=name, title=SECTIONS.find(name).summary.capitalize())
    if (answer := record.smoke) is not None:
        text = f"{answer.deployment} on {answer.instance}, {answer.asked}, {answer.seconds:.2f} s"
        parts = (Pairs((Pair("answered", text),)),)
        yield Section(key="answered", title="What its deployment answered", parts=parts)


def _hints_of(image: StoredImage, bandwidth: float | None, disk: float | None) -> PullHints:
    disks = (Disk(name=f"{decimal(disk)}/s", bytes_s=disk),) if disk else DISKS
    return make_hints(pulled_layers(image), bandwidth or _BANDWIDTH, disks)


def _attached(records: Sequence[BuildRecord], sbom: str) -> Iterator[Section]:
    """Yield the claims of attached records, each in one line, and the SBOM's."""
    rows = []
    for record in records:
        steps = ", ".join(f"{step.name} by {step.tool}" for step in record.steps)
        made = f"{record.model.name} built by packager {record.packager_version}"
        said = f"a build record, unproven: {made}{', ' + steps if steps else ''}"
        rows.append(Pair("attached", said))
    if sbom:
        rows.append(Pair("attached", sbom))
    if rows:
        yield Section(key="attached", title="What is attached", parts=(Pairs(tuple(rows)),))


def _record_of(image: StoredImage) -> BuildRecord | None:
    """Return the record of the image's build on this machine, with later measurements."""
    digests = (image.digest, image.sealed.config_descriptor.digest)
    place = find_record(state_dir(os.environ), digests)
    return load_record(place) if place else None

"""`packager inspect`."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import click

from packager.cli.plugins.tables import SECTIONS
from packager.cli.shared_options import format_option, image_options, take_rate
from packager.cli.terminal import print_json, print_line, print_lines, print_report
from packager.cli.wiring.images import image_services_for
from packager.cli.wiring.settings import Settings, parse_output, state_dir
from packager.core.errors import UsageError
from packager.core.image import Platform
from packager.core.record import BuildRecord
from packager.core.text import escape
from packager.core.units import decimal, parse_rate
from packager.images.pull_hints import DISKS, Disk, PullHints, make_hints
from packager.images.pull_report import hints_document, hints_text, pulled_layers
from packager.images.report import inspect_document, inspect_text
from packager.images.rootfs.report import files_document, files_text
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
@format_option
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
        _print_hints(_hints_of(opened.image, bandwidth, disk), output_format)
        return
    if files is not None:
        tree, reference = tools.files(opened), opened.image.reference
        if output_format == "json":
            print_json(files_document(reference, tree, files))
        else:
            print_report(files_text(reference, tree, files))
        return
    found, records = opened.image, attached_records(opened)
    others = [tools.open(parse_output(other), platform).image for other in shared_with]
    seen = tools.seen(target, [layer.descriptor.digest for layer in found.layers])
    record = _record_of(found)
    if output_format == "json":
        document = inspect_document(found, others, seen)
        document["attached_records"] = [json.loads(record_document(record)) for record in records]
        print_json({**document, **_measured_document(record)})
        return
    print_report(inspect_text(found, others, seen))
    if records:
        print_line()
        print_lines(f"attached   {_said(record)}" for record in records)
    if record is not None:
        _print_measured(record)


def _measured_document(record: BuildRecord | None) -> dict[str, Any]:
    """Return the measurements made of an image after its build."""
    later = (record.bench, record.starts, record.smoke) if record else ()
    return {
        name: found.model_dump(mode="json", exclude_none=True)
        for name, found in zip(("bench", "starts", "smoke"), later, strict=False)
        if found is not None
    }


def _print_measured(record: BuildRecord) -> None:
    for name in SECTIONS:
        if lines := list(SECTIONS.find(name).make(record)):
            print_line()
            print_lines(lines)
    if (answer := record.smoke) is not None:
        print_line()
        told = f"{answer.deployment} on {answer.instance}, {answer.asked}, {answer.seconds:.2f} s"
        print_line(f"answered   {told}")


def _hints_of(image: StoredImage, bandwidth: float | None, disk: float | None) -> PullHints:
    disks = (Disk(name=f"{decimal(disk)}/s", bytes_s=disk),) if disk else DISKS
    return make_hints(pulled_layers(image), bandwidth or _BANDWIDTH, disks)


def _print_hints(hints: PullHints, output_format: str) -> None:
    if output_format == "json":
        print_json(hints_document(hints))
    else:
        print_report(hints_text(hints))


def _said(record: BuildRecord) -> str:
    """Return the claims of an attached record in one line."""
    steps = ", ".join(f"{step.name} by {step.tool}" for step in record.steps)
    made = f"{record.model.name} built by packager {record.packager_version}"
    return escape(f"a build record, unproven: {made}{', ' + steps if steps else ''}")


def _record_of(image: StoredImage) -> BuildRecord | None:
    """Return the record of the image's build on this machine, with later measurements."""
    digests = (image.digest, image.sealed.config_descriptor.digest)
    place = find_record(state_dir(os.environ), digests)
    return load_record(place) if place else None

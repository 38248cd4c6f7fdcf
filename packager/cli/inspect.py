"""`packager inspect`."""

from __future__ import annotations

from pathlib import Path

import click

from packager import wiring
from packager.cli.options import format_option, image_options
from packager.cli.terminal import print_json, print_report
from packager.core.image import Platform
from packager.images.report import inspect_document, inspect_text


@click.command()
@click.argument("image")
@click.option(
    "--shared-with",
    multiple=True,
    metavar="IMAGE",
    help="Mark layers that this image has too. Repeatable.",
)
@image_options
@format_option
def inspect(
    image: str,
    shared_with: tuple[str, ...],
    platform: Platform,
    insecure_registries: tuple[str, ...],
    ca_file: Path | None,
    output_format: str,
) -> None:
    """Show how IMAGE was made, and its layers by role.

    IMAGE is HOST/REPOSITORY:TAG, oci:DIR[:TAG] or docker:NAME.  No layer is read.
    Of a registry's image it also says which layers builds on this machine have
    met in the registry's other repositories.

    \b
    packager inspect oci:out
    """
    tools = wiring.image_services_for(
        wiring.Settings(insecure_registries=insecure_registries, ca_file=ca_file)
    )
    target = wiring.parse_output(image)
    found = tools.open(target, platform).image
    others = [tools.open(wiring.parse_output(other), platform).image for other in shared_with]
    seen = tools.seen(target, [layer.descriptor.digest for layer in found.layers])
    if output_format == "json":
        print_json(inspect_document(found, others, seen))
    else:
        print_report(inspect_text(found, others, seen))

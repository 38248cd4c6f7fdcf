"""`packager inspect`."""

from __future__ import annotations

from pathlib import Path

import click

from packager import wiring
from packager.cli.options import format_option, image_options
from packager.cli.terminal import print_json, print_text
from packager.core.image import Platform
from packager.reports.image import inspect_document, inspect_text


@click.command()
@click.argument("image")
@click.option(
    "--shared-with",
    multiple=True,
    metavar="IMAGE",
    help="Say which layers this image has too. Repeatable.",
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
    """Say what IMAGE is: how it was made, and its layers by role.

    IMAGE is HOST/REPOSITORY:TAG, oci:DIR[:TAG] or docker:NAME.  No layer is read.
    Of a registry's image it also says which layers builds on this machine have
    met in the registry's other repositories.

    \b
    packager inspect oci:out
    """
    tools = wiring.image_tools_for(
        wiring.Settings(insecure_registries=insecure_registries, ca_file=ca_file)
    )
    found = tools.open(image, platform).image
    others = [tools.open(other, platform).image for other in shared_with]
    seen = tools.seen(image, [layer.descriptor.digest for layer in found.layers])
    if output_format == "json":
        print_json(inspect_document(found, others, seen))
    else:
        print_text(inspect_text(found, others, seen))

"""`packager diff`."""

from __future__ import annotations

from pathlib import Path

import click

from packager.cli.shared_options import format_option_of, image_options
from packager.cli.terminal import print_result
from packager.cli.wiring.images import image_services_for
from packager.cli.wiring.settings import Settings, parse_output
from packager.core.image import Platform
from packager.images.compare import compare
from packager.images.report import diff_document, diff_report

DIFFERENT = 1


@click.command()
@click.argument("first")
@click.argument("second")
@click.option("--exit-code", is_flag=True, help="End with status 1 when the images differ.")
@image_options
@format_option_of("json", "html")
def diff(
    first: str,
    second: str,
    exit_code: bool,
    platform: Platform,
    insecure_registries: tuple[str, ...],
    ca_file: Path | None,
    output_format: str,
) -> int:
    """Show which layers a node that has FIRST pulls for SECOND, and which settings differ.

    \b
    packager diff REGISTRY/models/tiny:1 oci:out
    """
    tools = image_services_for(Settings(insecure_registries=insecure_registries, ca_file=ca_file))
    one, other = (tools.open(parse_output(name), platform) for name in (first, second))
    found = compare(one.image, other.image)
    print_result(output_format, diff_document(found), diff_report(found))
    return DIFFERENT if exit_code and not found.same else 0

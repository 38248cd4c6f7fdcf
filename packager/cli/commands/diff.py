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
from packager.pipeline.plan_changes import (
    changes_document,
    changes_report,
    compare_plans,
    is_plan,
    read_plan,
)

DIFFERENT = 1


@click.command()
@click.argument("first")
@click.argument("second")
@click.option("--exit-code", is_flag=True, help="End with status 1 when they differ.")
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

    Two FILE.json of `packager plan --format json` are compared by what they decide.

    \b
    packager diff REGISTRY/models/tiny:1 oci:out
    packager diff before.json after.json
    """
    if is_plan(first) and is_plan(second):
        changes = compare_plans(read_plan(first), read_plan(second))
        report = changes_report(changes, f"{first} and {second}")
        print_result(output_format, changes_document(changes), report)
        return DIFFERENT if exit_code and not changes.same else 0
    tools = image_services_for(Settings(insecure_registries=insecure_registries, ca_file=ca_file))
    one, other = (tools.open(parse_output(name), platform) for name in (first, second))
    found = compare(one.image, other.image)
    print_result(output_format, diff_document(found), diff_report(found))
    return DIFFERENT if exit_code and not found.same else 0

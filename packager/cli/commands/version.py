"""`packager version`."""

from __future__ import annotations

import click

from packager.cli.doctor.installation import (
    describe_installation,
    installation_document,
    installation_lines,
)
from packager.cli.shared_options import format_option
from packager.cli.terminal import print_json, print_lines


@click.command()
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
@format_option
def version(output_format: str, as_json: bool) -> None:
    """Show what is installed: versions, the state of the shipped data, and extras.

    A report of a bug begins with it. `packager --version` prints the version alone.

    \b
    packager version --json
    """
    found = describe_installation()
    if as_json or output_format == "json":
        print_json(installation_document(found))
    else:
        print_lines(installation_lines(found))

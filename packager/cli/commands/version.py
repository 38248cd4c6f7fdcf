"""`packager version`."""

from __future__ import annotations

import click

from packager.cli.doctor.installation import (
    describe_installation,
    installation_document,
    installation_report,
)
from packager.cli.shared_options import format_option
from packager.cli.terminal import print_result


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
    chosen = "json" if as_json else output_format
    print_result(chosen, installation_document(found), installation_report(found))

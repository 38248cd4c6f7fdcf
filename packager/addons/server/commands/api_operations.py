"""`packager api operations`."""

from __future__ import annotations

from typing import get_args

import click

from packager.addons.server.sagemaker.operations import Here, OperationRow, names_of, operation_rows
from packager.cli.shared_options import format_option
from packager.cli.terminal import print_json, print_lines
from packager.core.reports.text import wrapped


@click.command()
@click.option("--service", metavar="NAME", help="Only those of a service, such as sagemaker.")
@click.option("--here", type=click.Choice(get_args(Here)), help="Only those of one kind.")
@format_option
def operations(service: str | None, here: Here | None, output_format: str) -> None:
    """List the operations of AWS's services, and what the server does with each.

    \b
    packager api operations --here answered
    """
    rows = [
        row
        for row in operation_rows()
        if service in (None, row.service) and here in (None, row.here)
    ]
    if output_format == "json":
        print_json({"operations": [_document(row) for row in rows]})
        return
    for row in rows:
        print_lines(wrapped(row.here, f"{row.service}: {row.says}"))
        print_lines(wrapped("", " ".join(names_of(row))))


def _document(row: OperationRow) -> dict[str, object]:
    return {
        "service": row.service,
        "operations": list(names_of(row)),
        "here": row.here,
        "says": row.says,
    }

"""`packager schema`."""

from __future__ import annotations

from typing import Literal

import click

from packager.cli.project import project_schema, request_schema
from packager.cli.terminal import print_json


@click.command()
@click.argument("kind", type=click.Choice(("request", "project")))
def schema(kind: Literal["request", "project"]) -> None:
    """Print the JSON schema of request files or project files.

    Editors complete and check a TOML file whose first line names its schema:
    `#:schema ./packager.schema.json`; a JSON file has "$schema".

    \b
    packager schema project > packager.schema.json
    """
    print_json(request_schema() if kind == "request" else project_schema())

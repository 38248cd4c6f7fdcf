"""`packager api env`."""

from __future__ import annotations

import os

import click

from packager.addons.server.clients import (
    RunningServer,
    client_variables,
    configuration_path,
    sdk_configuration,
    shell_lines,
)
from packager.addons.server.server import find_server
from packager.cli.terminal import note_lines, print_json, print_lines
from packager.cli.wiring.settings import server_state
from packager.core.errors import UsageError
from packager.core.files.atomic import explain_disk_errors, write_atomically

_AWS = "aws"


@click.command()
@click.option("--shell", "form", flag_value="shell", default=True, help="Lines for a shell.")
@click.option("--json", "form", flag_value="json", help="One JSON object: names and values.")
@click.option(
    "--s3",
    metavar="URL|aws",
    help="Where the buckets are; as the server has it by default. `aws`: at AWS itself.",
)
@click.option("--bucket", metavar="NAME", help="The SDKs' default bucket.")
def env(form: str, s3: str | None, bucket: str | None) -> None:
    """Print the variables with which notebooks and scripts ask the server of this machine.

    They send every AWS service to it, the addresses that SageMaker's SDKs name themselves
    included; only S3 goes to where your buckets are. The SDKs' configuration is written
    beside the server's state.

    \b
    packager api env --s3 http://127.0.0.1:9000 > client.env
    . ./client.env && jupyter lab
    """
    state = server_state(os.environ)
    server = find_server(state)
    configuration = configuration_path(state)
    with explain_disk_errors(configuration):
        write_atomically(configuration, sdk_configuration(bucket or server.bucket).encode())
    address = _s3(s3, server)
    variables = client_variables(
        server, s3=address, configuration=configuration, present=os.environ
    )
    if form == "json":
        print_json(variables)
    else:
        print_lines(shell_lines(variables))
    if not address:
        note_lines(
            [
                "no address of buckets is known: S3 is asked of the server, which has none;",
                "name yours with --s3 URL, or AWS's with --s3 aws",
            ]
        )


def _s3(given: str | None, server: RunningServer) -> str:
    """Return the address of S3 for clients; "" for none."""
    if given is None:
        return server.s3
    if given == _AWS:
        return f"https://s3.{server.region}.amazonaws.com"
    if not given.startswith(("http://", "https://")):
        raise UsageError(
            f"--s3 {given!r} is no address", hint="such as http://127.0.0.1:9000, or aws"
        )
    return given

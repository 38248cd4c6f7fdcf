"""`packager api`."""

from __future__ import annotations

from collections.abc import Mapping

import click

from packager.cli.addons import Rows
from packager.cli.lazy import LazyGroup


class ApiGroup(LazyGroup):
    """The commands about the SageMaker API."""

    sections: Mapping[str, Rows] = {
        "Commands": {
            "start": (
                "packager.addons.server.commands.serve:serve",
                "Answer the SageMaker API on this machine.",
            ),
            "env": (
                "packager.addons.server.commands.api_env:env",
                "Print what clients of the server need.",
            ),
            "operations": (
                "packager.addons.server.commands.api_operations:operations",
                "List what is answered, what is only kept, and what is refused.",
            ),
        },
    }


@click.group(cls=ApiGroup)
def api() -> None:
    """Answer the SageMaker API on this machine, and point its clients here."""

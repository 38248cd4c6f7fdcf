"""`packager completion`."""

from __future__ import annotations

import click

from packager.cli.completion.answer import script_of
from packager.cli.completion.shells import SHELLS
from packager.cli.terminal import print_text


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print the script by which a shell completes commands, options and values.

    Values are instances, families, versions, models and layouts on this machine, keys of the
    cache and more; completing never uses the network. It holds in the shell that reads the
    script; docs/install.md has a line for each shell to keep it.

    \b
    source <(packager completion bash)
    """
    print_text(script_of(shell))

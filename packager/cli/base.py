"""`packager base`."""

from __future__ import annotations

import click

from packager.adapters.bases.embedded import BASES, build_base, find_built


@click.group()
def base() -> None:
    """Build the serving bases that packager brings along."""


@base.command("build")
@click.argument("name", type=click.Choice(BASES))
def base_build(name: str) -> None:
    """Build a serving base (root on Debian, a few minutes) and print its digest.

    Built once: the result is kept and used by `--base embedded:NAME`.
    """
    click.echo(build_base(name))


@base.command("list")
def base_list() -> None:
    """List the serving bases and where the built ones are."""
    for name in BASES:
        click.echo(f"{name}  {find_built(name) or 'not built: packager base build ' + name}")

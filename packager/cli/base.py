"""`packager base`."""

from __future__ import annotations

import click

from packager.adapters.bases.embedded import BASES, build_base, find_built
from packager.cli.options import format_option
from packager.cli.terminal import print_json, print_line


@click.group()
def base() -> None:
    """Build the serving bases that packager brings along."""


@base.command("build")
@click.argument("name", type=click.Choice(BASES))
def base_build(name: str) -> None:
    """Build a serving base (root on Debian, a few minutes) and print its digest.

    Built once: the result is kept and used by `--base embedded:NAME`.
    """
    print_line(build_base(name))


@base.command("list")
@format_option
def base_list(output_format: str) -> None:
    """List the serving bases and where the built ones are."""
    places = {name: find_built(name) for name in BASES}
    if output_format == "json":
        rows = [
            {"name": name, "place": str(place) if place else None} for name, place in places.items()
        ]
        print_json(rows)
        return
    for name, place in places.items():
        print_line(f"{name}  {place or 'not built: packager base build ' + name}")

"""`packager claims`: the key that proves to other machines what layers in a registry hold."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from packager.cli.options import format_option
from packager.cli.terminal import note, print_json, print_line


@click.group()
def claims() -> None:
    """Show, hand on and take over the key that spares machines reading weights.

    A build notes beside its image which layer holds which files, and proves it with
    this key.  Machines with the same key then neither read nor send such layers.
    PACKAGER_CLAIM_KEY, or PACKAGER_CLAIM_KEY_FILE, gives the key to a CI job.
    """


@claims.command()
@click.option("--create", is_flag=True, help="Make a key when there is none.")
@format_option
def key(create: bool, output_format: str) -> None:
    """Print where the key is, and its id; never the key itself.

    \b
    packager claims key --create
    """
    from packager.adapters.claim_key import key_place, load_key, make_key
    from packager.adapters.files import explain_disk_errors

    place = key_place(os.environ)
    with explain_disk_errors(place.path or Path(place.name)):
        found = make_key(os.environ) if create else load_key(os.environ)
    document: dict[str, Any] = {"place": place.name, "id": found.id if found else None}
    if output_format == "json":
        print_json(document)
        return
    print_line(f"{'place':<7}{place.name}")
    print_line(f"{'id':<7}{found.id if found else 'none yet: a build makes one, or --create'}")


@claims.command()
def export() -> None:
    """Print the key itself, for the secret store of a team or a CI system.

    Who has it can have builds name layers of their choice: keep it like a password.

    \b
    packager claims export | ssh OTHER packager claims import -
    """
    from packager.adapters.claim_key import key_place, load_key
    from packager.errors import NotFound

    found = load_key(os.environ)
    if found is None:
        raise NotFound(
            f"there is no claim key in {key_place(os.environ).name!r}",
            hint="`packager claims key --create` makes one",
        )
    print_line(found.spelled())


@claims.command(name="import")
@click.argument("file", type=click.File("r"))
@click.option("--replace", is_flag=True, help="Give up the key that is here.")
def import_(file: Any, replace: bool) -> None:
    """Take over a key from FILE, or from - for standard input; print its id."""
    from packager.adapters.claim_key import key_place, take_key

    taken = take_key(os.environ, file.read(4096), replace=replace)
    print_line(taken.id)
    note(f"the claim key is {key_place(os.environ).name}")

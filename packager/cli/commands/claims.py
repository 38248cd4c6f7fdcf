"""`packager claims`: the key that proves to other machines what layers in a registry hold."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from packager.cli.shared_options import format_option
from packager.cli.terminal import note, print_json, print_line, print_value
from packager.core.files.user_files import read_file_or_stdin


@click.group()
def claims() -> None:
    """Show, export and import the key that proves the layers of earlier images.

    A build attaches to its image which layer holds which files, proved with this
    key.  Machines with the same key then neither read nor send such layers.
    PACKAGER_CLAIM_KEY, or PACKAGER_CLAIM_KEY_FILE, passes the key to a CI job.
    """


@claims.command()
@click.option("--create", is_flag=True, help="Generate a key if there is none.")
@format_option
def key(create: bool, output_format: str) -> None:
    """Print where the key is, and its id; never the key itself.

    \b
    packager claims key --create
    """
    from packager.core.files.atomic import explain_disk_errors
    from packager.images.claim_key import key_place, load_key, make_key

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
    from packager.core.errors import NotFound
    from packager.images.claim_key import key_place, load_key

    found = load_key(os.environ)
    if found is None:
        raise NotFound(
            f"no claim key found in {key_place(os.environ).name!r}",
            hint="`packager claims key --create` makes one",
        )
    print_value(found.spelled())


@claims.command(name="import")
@click.argument("file", metavar="FILE")
@click.option("--replace", is_flag=True, help="Replace the present key.")
def import_(file: str, replace: bool) -> None:
    """Import a key from FILE, or from - for standard input; print its id.

    \b
    packager claims import claim-key.json
    """
    from packager.images.claim_key import key_place, store_claim_key

    hint = "name what `packager claims export` printed, or - for stdin"
    data = read_file_or_stdin(file, what="the key", hint=hint, max_bytes=4096)
    taken = store_claim_key(os.environ, data.decode("ascii", "replace"), replace=replace)
    print_value(taken.id)
    note(f"the claim key is {key_place(os.environ).name}")

"""`packager cache keygen` and `trust`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from packager.cli.terminal import note, print_line, print_text


@click.command()
@click.option(
    "--to",
    "path",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Where the private key goes; a file of your own, which builds then sign with.",
)
@click.option(
    "--algorithm",
    type=click.Choice(("ed25519", "ecdsa-p256")),
    default="ed25519",
    show_default=True,
    help="What kind of key.",
)
def keygen(path: Path | None, algorithm: Any) -> None:
    """Make a key to sign entries with; print its public half.

    \b
    packager cache keygen > builder.pub
    packager cache trust builder.pub          # on every machine that uses its entries
    """
    from artifact_cache.trust import generate_key
    from packager import wiring
    from packager.adapters.cache_errors import explained_cache_errors

    place = path or wiring.signing_key_place()
    place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with explained_cache_errors():
        public = generate_key(place, algorithm)
    note(f"the private key is {place}")
    print_text(public.decode())


@click.command()
@click.argument("public_key", type=click.File("rb"), metavar="FILE")
@click.option("--comment", default="", metavar="TEXT", help="Whose key it is.")
@click.option(
    "--trusted-keys",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="The list it goes to; a file of your own.",
)
def trust(public_key: Any, comment: str, trusted_keys: Path | None) -> None:
    """Add a public key to the trusted ones; print its id."""
    from artifact_cache.trust import trust_key
    from packager import wiring
    from packager.adapters.cache_errors import explained_cache_errors

    place = trusted_keys or wiring.trusted_keys_place()
    place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with explained_cache_errors():
        print_line(trust_key(place, public_key.read(), comment))

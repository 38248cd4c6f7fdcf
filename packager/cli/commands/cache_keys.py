"""`packager cache keygen` and `trust`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from packager.cli.terminal import note, print_line, print_text
from packager.core.files.user_files import read_file_or_stdin

MAX_PEM_BYTES = 64 * 1024


@click.command()
@click.option(
    "--to",
    "path",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Output file of the private key; by default the one that builds sign with.",
)
@click.option(
    "--algorithm",
    type=click.Choice(("ed25519", "ecdsa-p256")),
    default="ed25519",
    show_default=True,
    help="Signature algorithm.",
)
def keygen(path: Path | None, algorithm: Any) -> None:
    """Generate a key pair for signing entries; print the public key.

    \b
    packager cache keygen > builder.pub
    packager cache trust builder.pub          # on every machine that uses its entries
    """
    from artifact_cache.trust import generate_key
    from packager.cli.wiring.caches import signing_key_place
    from packager.optimize.cache.errors import explained_cache_errors

    place = path or signing_key_place()
    place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with explained_cache_errors():
        public = generate_key(place, algorithm)
    note(f"the private key is {place}")
    print_text(public.decode())


@click.command()
@click.argument("public_key", metavar="FILE")
@click.option("--comment", default="", metavar="TEXT", help="Owner of the key, as a comment.")
@click.option(
    "--trusted-keys",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="List of trusted keys to add it to; by default your own.",
)
def trust(public_key: str, comment: str, trusted_keys: Path | None) -> None:
    """Add a public key to the trusted ones; print its id.

    \b
    packager cache trust cache-signing-key.pem.pub
    """
    from artifact_cache.trust import trust_key
    from packager.cli.wiring.caches import trusted_keys_place
    from packager.optimize.cache.errors import explained_cache_errors

    hint = "name the file of a public key, or - for stdin"
    pem = read_file_or_stdin(public_key, what="the public key", hint=hint, max_bytes=MAX_PEM_BYTES)
    place = trusted_keys or trusted_keys_place()
    place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with explained_cache_errors():
        print_line(trust_key(place, pem, comment))

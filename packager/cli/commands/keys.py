"""`packager keys`: all keys of the product in one place."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from packager.cli.lazy import ShortNames
from packager.cli.shared_options import format_option
from packager.cli.terminal import note, print_json, print_line, print_text
from packager.cli.wiring.keys import KINDS, key_rows
from packager.cli.wiring.signing import image_key_place, signer_for


@click.group(cls=ShortNames)
def keys() -> None:
    """List, make and explain the keys that prove images, layers and cached results.

    \b
    image    signs images: `build --sign`, `packager sign`; anybody can verify
    cache    signs entries of the artifact cache for machines that trust it
    claims   one secret of a team: which layers of a registry hold which files
    """


@keys.command("ls")
@format_option
def list_(output_format: str) -> None:
    """List the keys of this user: what they are for, where they are, their ids.

    \b
    packager keys ls
    """
    rows = list(key_rows(os.environ))
    if output_format == "json":
        print_json({"keys": rows})
        return
    for row in rows:
        known = row["id"] or "none yet"
        print_line(f"{row['kind']:<8}{known[:44]:<46}{row['place']}")


@keys.command()
@click.argument("kind", type=click.Choice(KINDS))
@click.option(
    "--to",
    "path",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Output file of the private key; by default your own, which builds look for.",
)
@click.pass_context
def make(ctx: click.Context, /, kind: str, path: Path | None) -> None:
    """Make a key of KIND; print the public key, of claims the id.

    \b
    packager keys make image > image-key.pub
    packager keys make cache > builder.pub
    """
    if kind == "image":
        from packager.images.signatures.keys import make_image_key, public_pem

        place = path or image_key_place()
        public = make_image_key(place)
        note(f"the private key is {place}")
        print_text(public_pem(public))
    elif kind == "cache":
        from packager.cli.commands.cache_keys import keygen

        ctx.invoke(keygen, path=path, algorithm="ed25519")
    else:
        from packager.cli.commands.claims import key
        from packager.core.errors import UsageError

        if path is not None:
            raise UsageError(
                "the key of claims has one place", hint="leave --to out, or use claims export"
            )
        ctx.invoke(key, create=True, output_format="text")


@keys.command()
@click.argument("key", required=False)
@format_option
def public(key: str | None, output_format: str) -> None:
    """Print the public key of an image KEY, for those who verify.

    KEY is a file, env://NAME or awskms://[ENDPOINT]/KEY; by default your own.

    \b
    packager keys public awskms:///alias/images > image-key.pub
    """
    from packager.images.signatures.keys import public_pem

    signer = signer_for(key or "", os.environ)
    pem = public_pem(signer.public_der)
    if output_format == "json":
        document: dict[str, Any] = {"id": signer.hint, "public_key": pem}
        print_json(document)
    else:
        print_text(pem)


@keys.command()
@format_option
def explain(output_format: str) -> None:
    """Explain each key: what it proves, to whom, and what it does not.

    \b
    packager keys explain
    """
    from packager.cli.wiring.keys import EXPLAINED

    if output_format == "json":
        print_json(EXPLAINED)
        return
    for kind, lines in EXPLAINED.items():
        print_line(f"{kind:<8}{lines['proves']}")
        print_line(f"{'':8}who has it: {lines['who']}")
        print_line(f"{'':8}options: {lines['options']}")

"""`packager deploy kubernetes policy`."""

from __future__ import annotations

from pathlib import Path

import click

from packager.addons.deploy.kubernetes.admission import VERIFIERS
from packager.addons.deploy.kubernetes.documents import render_object
from packager.cli.shared_options import format_option
from packager.cli.terminal import print_json, print_text
from packager.core.files.user_files import read_user_file
from packager.images.signatures.verifying import PublicKey

_HINT = "`packager keys public` prints one"


@click.command()
@click.argument("images", metavar="GLOB...", nargs=-1, required=True)
@click.option(
    "--key",
    required=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Public key in PEM that must have signed the images.",
)
@click.option(
    "--verifier",
    type=click.Choice(tuple(VERIFIERS)),
    default="kyverno",
    show_default=True,
    help="Which admission controller the cluster has.",
)
@click.option("--name", default="packager-signed", show_default=True, help="Name of the object.")
@format_option
def policy(
    images: tuple[str, ...], key: Path, verifier: str, name: str, output_format: str
) -> None:
    """Print the object with which a cluster admits images only if the key has signed them.

    GLOB is an image's name with `*`, as the controller reads it. Nothing is applied.

    \b
    packager deploy kubernetes policy 'REGISTRY/models/*' --key image-key.pub | kubectl apply -f -
    """
    PublicKey(str(key))  # refuses what verifies nothing
    pem = read_user_file(key, what="the key", hint=_HINT).decode("ascii", "replace")
    document = VERIFIERS[verifier](name, images, pem)
    if output_format == "json":
        print_json(document)
    else:
        print_text(render_object("policy.yaml", document).text)

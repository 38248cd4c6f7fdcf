"""`packager sign`."""

from __future__ import annotations

import os
from pathlib import Path

import click

from packager.cli.shared_options import format_option, image_options
from packager.cli.terminal import note, print_json, print_value, warn
from packager.cli.wiring.images import image_services_for
from packager.cli.wiring.settings import Settings, parse_output
from packager.cli.wiring.signing import (
    attached_documents,
    signer_for,
)
from packager.core.image import Platform
from packager.images.signatures.keys import public_pem


@click.command()
@click.argument("image")
@click.option(
    "--key",
    metavar="KEY",
    help="Private key: a file, env://NAME or awskms://[ENDPOINT]/KEY; by default your own.",
)
@click.option(
    "--attest",
    is_flag=True,
    help="Also sign the SBOM and the provenance that are attached: look at them first.",
)
@image_options
@format_option
def sign(
    image: str,
    key: str | None,
    attest: bool,
    platform: Platform,
    insecure_registries: tuple[str, ...],
    ca_file: Path | None,
    output_format: str,
) -> None:
    """Sign IMAGE: HOST/REPOSITORY:TAG or oci:DIR[:TAG]; print its digest.

    A signature is attached in both forms of cosign: a bundle as a referrer, and
    the tag sha256-….sig; attestations likewise, under sha256-….att.  No digest
    changes.  No service is asked: verifiers ignore the transparency log.

    \b
    packager sign REGISTRY/models/tiny:1 --key image-key.pem
    cosign verify --key image-key.pub --insecure-ignore-tlog=true REGISTRY/models/tiny:1
    """
    target = parse_output(image)
    settings = Settings(
        outputs=(target,),
        insecure_registries=insecure_registries,
        ca_file=ca_file,
        on_warning=warn,
    )
    signer = signer_for(key or "", os.environ)
    services = image_services_for(settings)
    found = services.open(target, platform)
    documents = attached_documents(found) if attest else {}
    sealed = found.image.sealed
    services.sign(signer, found.image, documents)
    if output_format == "json":
        print_json(
            {
                "digest": sealed.digest,
                "public_key": public_pem(signer.public_der),
                "signed": ["image", *documents],
            }
        )
        return
    note(f"signed by the key {signer.hint}: {', '.join(['the image', *documents])}")
    print_value(f"{image}@{sealed.digest}")

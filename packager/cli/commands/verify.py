"""`packager verify`."""

from __future__ import annotations

from pathlib import Path

import click

from packager.cli.shared_options import format_option, image_options
from packager.cli.terminal import note, print_json, print_value, warn
from packager.cli.wiring.images import image_services_for
from packager.cli.wiring.settings import Settings, parse_output
from packager.core.image import Platform
from packager.images.signatures.statements import CYCLONEDX, SIGNED, SLSA
from packager.images.signatures.verifying import PublicKey, check_proven

_TYPES = {"signature": SIGNED, "sbom": CYCLONEDX, "provenance": SLSA}


@click.command()
@click.argument("image")
@click.option(
    "--key",
    "keys",
    multiple=True,
    required=True,
    metavar="FILE",
    help="Public key in PEM, on P-256; any one of several has to have signed.",
)
@click.option(
    "--type",
    "types",
    multiple=True,
    metavar="TYPE",
    help="What has to be signed: signature (the default), sbom, provenance, or the URI of a "
    "predicate; repeatable, and all of them.",
)
@image_options
@format_option
def verify(
    image: str,
    keys: tuple[str, ...],
    types: tuple[str, ...],
    platform: Platform,
    insecure_registries: tuple[str, ...],
    ca_file: Path | None,
    output_format: str,
) -> None:
    """Verify the signatures of IMAGE: HOST/REPOSITORY:TAG or oci:DIR[:TAG]; print its digest.

    The tag is resolved once: go on with the digest that is printed.  Sigstore's
    bundles and the tags .sig and .att count, each for its exact type.  Ends with 65
    where a key has not signed what is wanted.

    \b
    packager verify REGISTRY/models/tiny:1 --key image-key.pub
    packager verify REGISTRY/models/tiny:1 --key image-key.pub --type signature --type sbom
    """
    target = parse_output(image)
    settings = Settings(insecure_registries=insecure_registries, ca_file=ca_file, on_warning=warn)
    public = tuple(map(PublicKey, keys))
    found = image_services_for(settings).open(target, platform)
    digest = found.image.digest
    wanted = tuple(_TYPES.get(one, one) for one in types or ("signature",))
    proofs = check_proven(image, digest, found.read_attached("", warn), public, wanted)
    if output_format == "json":
        shown = [{"type": one.predicate_type, "key": one.key} for one in proofs]
        print_json({"image": image, "digest": digest, "proven": shown})
        return
    for kind in wanted:
        by = ", ".join(dict.fromkeys(one.key for one in proofs if one.predicate_type == kind))
        note(f"{kind}: by {by}")
    print_value(f"{image.partition('@')[0]}@{digest}")

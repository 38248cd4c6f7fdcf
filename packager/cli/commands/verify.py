"""`packager verify`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import click

from packager.cli.shared_options import format_option, image_options
from packager.cli.terminal import note, print_json, print_value, warn
from packager.cli.wiring.images import image_services_for
from packager.cli.wiring.policies import named_policy
from packager.cli.wiring.settings import Settings, parse_output
from packager.core.errors import PackagerError, ProtocolFailed, UsageError
from packager.core.image import Platform
from packager.core.references import ImageTarget, RegistryTarget
from packager.images.opened import OpenImage
from packager.images.signatures.policy import TYPES, canonical_name, check_image
from packager.images.signatures.verifying import PublicKey, SignedStatement, check_proven


@click.command()
@click.argument("image", required=False)
@click.option(
    "--key",
    "keys",
    multiple=True,
    metavar="FILE",
    help="Public key in PEM, on P-256; any one of several has to have signed.",
)
@click.option(
    "--policy",
    "policy_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Hold the image to this policy; without --key and --policy to your own.",
)
@click.option(
    "--type",
    "types",
    multiple=True,
    metavar="TYPE",
    help="What has to be signed: signature (the default), sbom, provenance, vex, vuln, or the URI "
    "of a predicate; repeatable, and all of them.",
)
@click.option("-name", "asked_name", hidden=True, help="The image, as containerd asks.")
@click.option("-digest", "asked_digest", hidden=True, help="Its digest, as containerd asks.")
@click.option("-stdin-media-type", "asked_type", hidden=True, help="Of what comes on stdin.")
@image_options
@format_option
def verify(
    image: str | None,
    keys: tuple[str, ...],
    policy_file: Path | None,
    types: tuple[str, ...],
    asked_name: str | None,
    asked_digest: str | None,
    asked_type: str | None,  # noqa: ARG001
    platform: Platform,
    insecure_registries: tuple[str, ...],
    ca_file: Path | None,
    output_format: str,
) -> None:
    """Verify IMAGE, HOST/REPOSITORY:TAG or oci:DIR[:TAG], by keys or a policy; print its digest.

    The tag is resolved once: go on with the digest that is printed.  Sigstore's
    bundles and the tags .sig and .att count, each for its exact type.  Ends with 65
    where a key has not signed what is wanted, or the policy does not hold.  As a
    verifier of containerd it takes -name, -digest and -stdin-media-type.

    \b
    packager verify REGISTRY/models/tiny:1 --key image-key.pub --type signature --type sbom
    packager verify REGISTRY/models/tiny:1 --policy policy.toml
    """
    if policy_file and (keys or types):
        raise UsageError("--policy says keys and types by itself", hint="leave --key, --type out")
    target = _target(image, asked_name, asked_digest)
    settings = Settings(insecure_registries=insecure_registries, ca_file=ca_file, on_warning=warn)
    public = tuple(map(PublicKey, keys))
    policy = named_policy(policy_file, os.environ) if not keys else None
    wanted = () if policy else tuple(types or ("signature",))
    try:
        found = image_services_for(settings).open(target, platform)
        digest = found.image.digest
        if asked_digest not in (None, digest, found.index):
            raise ProtocolFailed(
                f"{target.text!r} is {digest}, not {asked_digest}",
                hint="ask the registry's operator",
            )
        if policy is not None:
            proofs = check_image(policy, canonical_name(target), found.signed_of(warn))
        else:
            proofs = _proven(target.text, found, public, wanted)
    except PackagerError as error:
        if asked_name:
            print_value(error.message)  # containerd logs what comes on stdout
        raise
    if output_format == "json":
        shown = [{"type": one.predicate_type, "key": one.key} for one in proofs]
        print_json({"image": target.text, "digest": digest, "proven": shown})
        return
    for kind in wanted or dict.fromkeys(one.predicate_type for one in proofs):
        named = TYPES.get(kind, kind)
        by = ", ".join(dict.fromkeys(one.key for one in proofs if one.predicate_type == named))
        note(f"{named}: by {by}")
    print_value(f"{target.text.partition('@')[0]}@{asked_digest or digest}")


def _target(image: str | None, name: str | None, digest: str | None) -> ImageTarget:
    """Return the image that is asked about: by us, or by containerd in its own words."""
    if image and not (name or digest):
        return parse_output(image)
    if image or not (name and digest):
        raise UsageError("no image is named", hint="packager verify HOST/REPOSITORY:TAG --key FILE")
    target = parse_output(name)
    if not isinstance(target, RegistryTarget):
        raise UsageError(f"{name!r} is not in a registry", hint="containerd pulls from registries")
    return target.with_digest(digest)


def _proven(
    name: str, found: OpenImage, keys: Sequence[PublicKey], types: Sequence[str]
) -> tuple[SignedStatement, ...]:
    """Return what keys have proven of an image, or of the index that names it."""
    wanted = tuple(TYPES.get(one, one) for one in types)
    return check_proven(name, found.image.digest, found.signed_of(warn), keys, wanted)

"""`packager join`."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import click

from packager.cli.commands.copy import sign_option
from packager.cli.progress import progress_options, shown_progress
from packager.cli.shared_options import (
    format_option,
    parse_platform,
    policy_options,
    registry_options,
)
from packager.cli.terminal import note_lines, print_json, print_value, warn
from packager.cli.wiring.images import ImageServices, image_services_for
from packager.cli.wiring.settings import Settings, parse_output
from packager.cli.wiring.signing import signed_index, signer_for, statements_of
from packager.core.errors import NotFound, UsageError
from packager.core.events import StagesEvent
from packager.core.image import SealedImage, Written
from packager.core.platforms import PLATFORMS
from packager.core.references import ImageTarget
from packager.core.units import decimal
from packager.core.version import __version__
from packager.images.attached import VERSION, attach_document
from packager.images.joining import documents_of, in_order, join_images, shared_bytes
from packager.images.opened import OpenImage
from packager.images.report import copy_document, copy_lines
from packager.images.signatures.keys import ImageSigner

_TITLE = "org.opencontainers.image.title"


@click.command()
@click.argument("images", metavar="IMAGE...", nargs=-1, required=True)
@click.option(
    "-o",
    "--output",
    "outputs",
    multiple=True,
    required=True,
    metavar="OUT",
    help="Where the index goes: HOST/REPOSITORY:TAG or oci:DIR[:TAG]; repeatable.",
)
@sign_option
@registry_options
@policy_options
@progress_options
@format_option
def join(
    images: tuple[str, ...],
    outputs: tuple[str, ...],
    key: str | None,
    progress: str,
    quiet: bool,
    output_format: str,
    **given: Any,
) -> None:
    """Write one index of images for several platforms; print its digest.

    Each IMAGE is HOST/REPOSITORY:TAG or oci:DIR[:TAG]; of an index, all images
    for linux/amd64 and linux/arm64 count.  Manifests keep their bytes, with what
    is attached to them.  Layers that several have, such as weights, are one blob.
    The index has an SBOM and provenance that name its images.

    \b
    packager join REGISTRY/models/tiny:1-amd64 REGISTRY/models/tiny:1-arm64 \\
      --output REGISTRY/models/tiny:1
    """
    targets = tuple(map(parse_output, outputs))
    signer = signer_for(key, os.environ) if key else None
    with shown_progress(progress, quiet=quiet, as_json=output_format == "json") as on_event:
        on_event(StagesEvent(stages=("image", "layers", "publish")))
        settings = Settings(outputs=targets, on_event=on_event, on_warning=warn, **given)
        tools = image_services_for(settings)
        if tools.runnable_only:
            raise UsageError(
                f"{tools.runnable_only[0]!r} holds one image, and no index",
                hint="name a registry or an oci: layout; an engine takes its image from there",
            )
        found = _opened(tuple(map(parse_output, images)), tools)
        written, transfer = join_images(found, tools.write)
        attached = _attach(found, written, tools)
        if signer is not None:
            _sign(signer, found, written.image, tools)
    if output_format == "json":
        document = copy_document(found[0].image, written, transfer, None, attached)
        platforms = {str(one.image.platform): one.image.digest for one in in_order(found)}
        print_json({**document, "platforms": platforms, "shared_bytes": shared_bytes(found)})
        return
    if not quiet:
        names = ", ".join(str(one.image.platform) for one in in_order(found))
        shared = f"images for {names}; {decimal(shared_bytes(found))} of layers are shared"
        note_lines([shared, *copy_lines(written, transfer)])
    for ref in written.refs:
        print_value(f"{ref.name}@{ref.digest}")


def _opened(targets: tuple[ImageTarget, ...], tools: ImageServices) -> list[OpenImage]:
    """Open each image, of an index each of its images, once."""
    found: dict[str, OpenImage] = {}
    for target in targets:
        opened, missing = 0, None
        for platform in map(parse_platform, PLATFORMS):
            try:
                one = tools.open(target, platform)
            except NotFound as error:
                missing = error
                continue
            found.setdefault(one.image.digest, one)
            opened += 1
        if not opened and missing is not None:
            raise missing
    return list(found.values())


def _attach(found: list[OpenImage], written: Written, tools: ImageServices) -> int:
    """Attach what is attached to the images, and the index's own documents; return how many."""
    count = 0
    for one in found:
        for artifact in one.read_attached("", warn):
            tools.attach(written.image, (artifact,))
            count += 1
    documents = documents_of(in_order(found), written.image, _name(found))
    own = [
        attach_document(written.image.named, data, kind, {VERSION: __version__})
        for kind, data in documents.items()
    ]
    tools.attach(written.image, own)
    return count + len(own)


def _sign(
    signer: ImageSigner, found: list[OpenImage], image: SealedImage, tools: ImageServices
) -> None:
    """Sign the index, its documents, and each image that it names."""
    name = _name(found)
    documents = documents_of(in_order(found), image, name)
    alone = replace(image, manifest_descriptor=image.named)  # statements are about the index
    said = statements_of(documents, alone, name)
    tools.sign_index(lambda place: signed_index(signer, image, place or name, said), image)


def _name(found: list[OpenImage]) -> str:
    return found[0].image.labels.get(_TITLE, "image")

"""`packager copy` and `packager push`."""

from __future__ import annotations

import os
from typing import Any

import click

from packager.cli.plugins.tables import SINKS
from packager.cli.progress import progress_options, shown_progress
from packager.cli.shared_options import format_option, image_options, policy_options
from packager.cli.terminal import note, note_lines, print_json, print_value, warn
from packager.cli.wiring.images import image_services_for
from packager.cli.wiring.outputs import refuse_trees
from packager.cli.wiring.settings import Settings, parse_output
from packager.cli.wiring.signing import signer_for
from packager.core.errors import UsageError
from packager.core.events import StagesEvent
from packager.core.image import Platform
from packager.images.copy import copy_attached, copy_image
from packager.images.report import copy_document, copy_lines
from packager.images.views import ADAPTER_VIEW, VIEWS, view_of

view_option = click.option(
    "--view",
    type=click.Choice(tuple(VIEWS)),
    help="Write this view of the same layers: weights is a plain image of the model's files, "
    "modelpack a CNCF ModelPack artifact, kserve the model's files at /models for KServe's native "
    "OCI storage, modelcar the whole image with /models for KServe's sidecar, docker the whole "
    "image with Docker's media types, which SageMaker wants.",
)

adapter_option = click.option(
    "--adapter-only",
    metavar="NAME",
    help="Write this adapter of the image alone, an image that deployments mount: "
    "`packager deploy kubernetes apply --adapter`.",
)

sign_option = click.option(
    "--sign",
    "key",
    metavar="KEY",
    help="Sign what is written with this private key: a file, env://NAME or awskms://….",
)


@click.command()
@click.argument("source")
@click.argument("outputs", metavar="DESTINATION...", nargs=-1, required=True)
@view_option
@adapter_option
@sign_option
@image_options
@policy_options
@progress_options
@format_option
def copy(
    source: str,
    outputs: tuple[str, ...],
    view: str | None,
    adapter_only: str | None,
    key: str | None,
    platform: Platform,
    progress: str,
    quiet: bool,
    output_format: str,
    **given: Any,
) -> None:
    """Copy an image, or a view of it, from SOURCE to each DESTINATION; print its digest.

    Both are HOST/REPOSITORY:TAG, oci:DIR[:TAG] or docker:NAME.  The manifest
    keeps its bytes.  Layers that are there, or can be mounted, are not read;
    names and tags come last.

    \b
    packager copy oci:out REGISTRY/models/tiny:1
    packager copy --view weights REGISTRY/models/tiny:1 REGISTRY/models/tiny:1-weights
    """
    target, targets = parse_output(source), tuple(map(parse_output, outputs))
    signer = signer_for(key, os.environ) if key else None
    make = view_of(view, adapter_only)
    with shown_progress(progress, quiet=quiet, as_json=output_format == "json") as on_event:
        on_event(StagesEvent(stages=("image", "layers", "publish")))
        tools = image_services_for(
            Settings(outputs=targets, on_event=on_event, on_warning=warn, **given)
        )
        found = tools.open(target, platform)
        written, transfer = copy_image(
            found,
            tools.write,
            runnable_only=tools.runnable_only,
            view=make,
        )
        attached = copy_attached(found, written, tools.attach, warn)
        if signer is not None:
            tools.sign(signer, make(found.image) if make else found.image, {})
    if output_format == "json":
        shown = ADAPTER_VIEW if adapter_only else view
        print_json(copy_document(found.image, written, transfer, shown, attached))
        return
    if not quiet:
        if len(found.offered) > 1:
            note(
                f"of the images for {', '.join(found.offered)}, only the one for {platform} is "
                "copied; --platform chooses"
            )
        note_lines(copy_lines(written, transfer))
    for ref in written.refs:
        print_value(f"{ref.name}@{ref.digest}")


@click.command()
@click.argument("source")
@click.argument("outputs", metavar="REGISTRY/REPOSITORY:TAG...", nargs=-1, required=True)
@view_option
@adapter_option
@sign_option
@image_options
@policy_options
@progress_options
@format_option
@click.pass_context
def push(ctx: click.Context, /, source: str, outputs: tuple[str, ...], **given: object) -> None:
    """Copy an image from this machine, oci:DIR[:TAG] or docker:NAME, to registries.

    \b
    packager push oci:out REGISTRY/models/tiny:1
    """
    if _is_remote(source):
        raise UsageError(
            f"{source!r} is not on this machine",
            hint=f"name oci:DIR or docker:NAME, or use packager copy {source} {outputs[0]}",
        )
    refuse_trees(tuple(map(parse_output, outputs)), "push")
    local = next((output for output in outputs if not _is_remote(output)), None)
    if local:
        raise UsageError(
            f"{local!r} is not a registry", hint=f"use packager copy {source} {' '.join(outputs)}"
        )
    ctx.invoke(copy, source=source, outputs=outputs, **given)


def _is_remote(text: str) -> bool:
    return SINKS.of_target(parse_output(text)).traits.is_remote

"""`packager copy` and `packager push`."""

from __future__ import annotations

from pathlib import Path

import click

from packager import plugins, wiring
from packager.cli.options import format_option, image_options
from packager.cli.progress import progress_options, shown_progress
from packager.cli.terminal import note, note_lines, print_json, print_line, warn
from packager.core.image import Platform
from packager.errors import UsageError
from packager.imaging.views import VIEWS
from packager.jobs.copy import copy_image
from packager.reports.image import copy_document, copy_lines

view_option = click.option(
    "--view",
    type=click.Choice(tuple(VIEWS)),
    help="Write this view of the same layers: weights is a plain image of the model's files, "
    "modelpack a CNCF ModelPack artifact.",
)


@click.command()
@click.argument("source")
@click.argument("outputs", metavar="DESTINATION...", nargs=-1, required=True)
@view_option
@image_options
@progress_options
@format_option
def copy(
    source: str,
    outputs: tuple[str, ...],
    view: str | None,
    platform: Platform,
    insecure_registries: tuple[str, ...],
    ca_file: Path | None,
    progress: str,
    quiet: bool,
    output_format: str,
) -> None:
    """Copy an image, or a view of it, from SOURCE to each DESTINATION; print its digest.

    Both are HOST/REPOSITORY:TAG, oci:DIR[:TAG] or docker:NAME.  The manifest
    keeps its bytes.  Layers that are there, or can be mounted, are not read;
    names and tags come last.

    \b
    packager copy oci:out REGISTRY/models/tiny:1
    packager copy --view weights REGISTRY/models/tiny:1 REGISTRY/models/tiny:1-weights
    """
    with shown_progress(progress, quiet=quiet, as_json=output_format == "json") as on_event:
        tools = wiring.image_tools_for(
            wiring.Settings(
                outputs=outputs,
                insecure_registries=insecure_registries,
                ca_file=ca_file,
                on_event=on_event,
                on_warning=warn,
            )
        )
        found = tools.open(source, platform)
        written, transfer = copy_image(
            found, tools.write, outputs=outputs, view=VIEWS[view] if view else None
        )
    if output_format == "json":
        print_json(copy_document(found.image, written, transfer, view))
        return
    if not quiet:
        if len(found.offered) > 1:
            note(
                f"of the images for {', '.join(found.offered)}, only the one for {platform} is "
                "copied; --platform chooses"
            )
        note_lines(copy_lines(written, transfer))
    for ref in written.refs:
        print_line(f"{ref.name}@{ref.digest}")


@click.command()
@click.argument("source")
@click.argument("outputs", metavar="REGISTRY/REPOSITORY:TAG...", nargs=-1, required=True)
@view_option
@image_options
@progress_options
@format_option
@click.pass_context
def push(ctx: click.Context, /, source: str, outputs: tuple[str, ...], **given: object) -> None:
    """Copy an image from this machine, oci:DIR[:TAG] or docker:NAME, to registries.

    \b
    packager push oci:out REGISTRY/models/tiny:1
    """
    if plugins.scheme_of(source, plugins.SINKS) == "registry":
        raise UsageError(
            f"{source!r} is not on this machine",
            hint=f"name oci:DIR or docker:NAME, or use packager copy {source} {outputs[0]}",
        )
    local = next((out for out in outputs if plugins.scheme_of(out, plugins.SINKS) != "registry"), 0)
    if local:
        raise UsageError(
            f"{local!r} is no registry", hint=f"use packager copy {source} {' '.join(outputs)}"
        )
    ctx.invoke(copy, source=source, outputs=outputs, **given)

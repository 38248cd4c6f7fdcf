"""`packager lineage`."""

from __future__ import annotations

from pathlib import Path

import click

from packager.addons.server.wiring.lineage import find_lineage
from packager.cli.shared_options import format_option_of, image_options
from packager.cli.terminal import note, print_json, print_lines, print_text
from packager.cli.wiring.settings import Settings
from packager.core.errors import UsageError
from packager.core.files.atomic import explain_disk_errors, write_atomically
from packager.core.image import Platform
from packager.core.reports.page import report_html
from packager.images.lineage.drawing import lineage_svg
from packager.images.lineage.graph import LineageGraph
from packager.images.lineage.page import lineage_page
from packager.images.lineage.report import lineage_document, lineage_lines

_MOST_UNREADABLE = 5  # named one by one


@click.command()
@click.argument("ref")
@image_options
@click.option(
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write a drawing or a page to FILE, too, by its ending .svg or .html.",
)
@format_option_of("json", "svg", "html")
def lineage(
    ref: str,
    platform: Platform,
    insecure_registries: tuple[str, ...],
    ca_file: Path | None,
    output: Path | None,
    output_format: str,
) -> None:
    """Show what REF was made from, and what it went into.

    REF is an image (HOST/REPOSITORY:TAG, oci:DIR[:TAG] or docker:NAME), files of a model that a
    build wrote (dir:DIR or s3://BUCKET/PREFIX), the file of a build record, a digest, a key of
    the artifact cache, or the name of a job, an endpoint or a model.
    Build records, the artifact cache, jobs and endpoints of this machine are looked through;
    of an image elsewhere, the record that is attached to it, which is shown as a claim.

    \b
    packager lineage oci:out
    packager lineage oci:out --format svg > lineage.svg
    """
    form = _form_of(output) if output else ""
    settings = Settings(insecure_registries=insecure_registries, ca_file=ca_file)
    found = find_lineage(ref, platform, settings)
    for one in found.notes:
        note(f"note: {one}")
    for fault in found.unreadable[:_MOST_UNREADABLE]:
        note(f"warning: left out, as it cannot be read: {fault}")
    if len(found.unreadable) > _MOST_UNREADABLE:
        note(f"warning: {len(found.unreadable) - _MOST_UNREADABLE:,} more cannot be read")
    if output is not None:
        with explain_disk_errors(output):
            write_atomically(output, _drawn(found.graph, form).encode())
    if output_format == "json":
        print_json(lineage_document(found.graph))
    elif output_format == "text":
        print_lines(lineage_lines(found.graph))
    else:
        print_text(_drawn(found.graph, output_format).rstrip("\n"))


def _drawn(graph: LineageGraph, form: str) -> str:
    return lineage_svg(graph) if form == "svg" else report_html(lineage_page(graph))


def _form_of(output: Path) -> str:
    form = output.suffix.removeprefix(".").lower()
    if form not in ("svg", "html"):
        raise UsageError(
            f"{str(output)!r} is no drawing and no page",
            hint="end its name in .svg or .html; --format json prints the graph for programs",
        )
    return form

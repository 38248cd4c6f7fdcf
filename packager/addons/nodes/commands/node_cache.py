"""`packager node-cache`."""

from __future__ import annotations

from pathlib import Path

import click

from packager.addons.nodes.commands.node_options import layers_option, node_services
from packager.addons.nodes.node_cache.fill import FillOptions, fill_node_cache
from packager.addons.nodes.node_cache.report import node_cache_document, node_cache_lines
from packager.cli.progress import progress_options, shown_progress
from packager.cli.shared_options import format_option, image_options, policy_options
from packager.cli.terminal import note_lines, print_json, print_value
from packager.cli.wiring.settings import parse_output
from packager.core.events import StagesEvent
from packager.core.image import Platform
from packager.images.selection import LayerChoice


@click.command()
@click.argument("image")
@click.argument("directory", type=click.Path(path_type=Path))
@layers_option("all")
@click.option(
    "--dm-verity",
    is_flag=True,
    help="Append a hash tree to each entry, with which the kernel proves every block it reads.",
)
@click.option("--verify", is_flag=True, help="Read entries that are there; replace damaged ones.")
@click.option("--strict", is_flag=True, help="Fail where a layer cannot be a file system as it is.")
@click.option(
    "--at-once",
    type=click.IntRange(1, 32),
    default=4,
    show_default=True,
    metavar="N",
    help="Layers that are read at the same time.",
)
@image_options
@policy_options
@progress_options
@format_option
def node_cache(
    image: str,
    directory: Path,
    layers: LayerChoice,
    dm_verity: bool,
    verify: bool,
    strict: bool,
    at_once: int,
    platform: Platform,
    insecure_registries: tuple[str, ...],
    ca_file: Path | None,
    progress: str,
    quiet: bool,
    output_format: str,
) -> None:
    """Fill DIRECTORY with IMAGE's layers as file systems that nodes mount without unpacking.

    IMAGE is HOST/REPOSITORY:TAG, oci:DIR[:TAG] or docker:NAME.  Each layer that is not there
    yet is read once; what is there is kept.  The directory is one of containerd's
    `layer_content_caches`, for a machine image or a snapshot of a disk.  Its path is printed.

    \b
    packager node-cache oci:out node-cache
    packager node-cache oci:out node-cache --layers weights --dm-verity
    """
    options = FillOptions(
        layers=layers, dm_verity=dm_verity, verify=verify, strict=strict, at_once=at_once
    )
    target = parse_output(image)
    with shown_progress(progress, quiet=quiet, as_json=output_format == "json") as on_event:
        on_event(StagesEvent(stages=("image", "space", "layers")))
        tools = node_services(on_event, insecure_registries, ca_file)
        report = fill_node_cache(
            tools.open(target, platform), directory, tools.reader, options, on_event
        )
    if output_format == "json":
        print_json(node_cache_document(report))
        return
    if not quiet:
        note_lines(node_cache_lines(report))
    print_value(str(report.directory))

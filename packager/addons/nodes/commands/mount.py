"""`packager mount` and `packager unmount`."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from packager.addons.nodes.commands.node_options import layers_option, node_services
from packager.addons.nodes.mounts.mounts import (
    MountOptions,
    check_machine,
    list_mounts,
    mount_image,
    unmount_image,
)
from packager.addons.nodes.mounts.report import mount_document, mounts_report
from packager.addons.nodes.wiring.node_caches import node_image_services_for
from packager.cli.progress import progress_options, shown_progress
from packager.cli.shared_options import format_option, image_options, policy_options
from packager.cli.terminal import note, print_json, print_result, print_value
from packager.cli.wiring.settings import Settings, parse_output
from packager.core.errors import UsageError
from packager.core.events import StagesEvent
from packager.core.image import Platform
from packager.images.selection import LayerChoice

_directory = click.Path(path_type=Path)


@click.command()
@click.argument("image", required=False)
@click.argument("directory", type=_directory, required=False)
@layers_option("own")
@click.option(
    "--node-cache",
    type=_directory,
    metavar="DIR",
    help="Take layers from this node cache; IMAGE may then be in a registry, or compressed.",
)
@click.option(
    "--no-verify",
    is_flag=True,
    help="Do not hash layers that were not hashed since they were written.",
)
@click.option("--list", "list_", is_flag=True, help="List what is mounted.")
@image_options
@policy_options
@progress_options
@format_option
def mount(
    image: str | None,
    directory: Path | None,
    layers: LayerChoice,
    node_cache: Path | None,
    no_verify: bool,
    list_: bool,
    platform: Platform,
    insecure_registries: tuple[str, ...],
    ca_file: Path | None,
    progress: str,
    quiet: bool,
    output_format: str,
) -> None:
    """Mount IMAGE's model at DIRECTORY, read-only, without unpacking or copying it.

    IMAGE is oci:DIR[:TAG]; only root may mount.  Layers are hashed first, once: as long as their
    files are not written to, not again.  The model is at DIRECTORY/opt/packager/model.

    \b
    packager mount oci:out mnt
    packager mount --list
    packager unmount mnt
    """
    if list_:
        _list(image, output_format)
        return
    if image is None or directory is None:
        raise UsageError(
            "an image and a directory are needed",
            hint="packager mount oci:out DIRECTORY, or packager mount --list",
        )
    check_machine(shlex.join(("mount", image, str(directory))))
    target = parse_output(image)
    if target.scheme != "oci" and node_cache is None:
        raise UsageError(
            f"{image!r} is not a layout on this machine",
            hint=f"`packager copy {image} oci:DIR`, then mount that; or fill a node cache and "
            "name it with --node-cache",
        )
    with shown_progress(progress, quiet=quiet, as_json=output_format == "json") as on_event:
        on_event(StagesEvent(stages=("image", "layers")))
        tools = node_services(on_event, insecure_registries, ca_file)
        mounted = mount_image(
            tools.open(target, platform),
            directory,
            MountOptions(layers=layers, node_cache=node_cache, verify=not no_verify),
            records=tools.mounts,
            index=tools.index,
            on_event=on_event,
        )
    if output_format == "json":
        print_json(mount_document(mounted))
        return
    if mounted.was_mounted and not quiet:
        note(f"{mounted.directory} shows this image already")
    print_value(str(mounted.directory))


@click.command()
@click.argument("directory", type=_directory)
@format_option
def unmount(directory: Path, output_format: str) -> None:
    """Remove what `packager mount` mounted at DIRECTORY.

    Says which processes use it where that is why it stays.

    \b
    packager unmount mnt
    """
    check_machine(shlex.join(("unmount", str(directory))))
    gone = unmount_image(directory, node_image_services_for(Settings()).mounts)
    if output_format == "json":
        print_json(mount_document(gone))
        return
    print_value(str(gone.directory))


def _list(image: str | None, output_format: str) -> None:
    if image is not None:
        raise UsageError(
            f"--list takes no image: {image!r}", hint="it lists everything that is mounted"
        )
    mounts = list_mounts(node_image_services_for(Settings()).mounts)
    documents = [mount_document(one) for one in mounts]
    print_result(output_format, documents, mounts_report(mounts))
    if not mounts and output_format != "json":
        note("nothing is mounted")

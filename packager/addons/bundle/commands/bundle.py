"""`packager bundle`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from packager.addons.bundle.contents import settings_of, shell_lines
from packager.addons.bundle.manifest import (
    LEAST_PART_BYTES,
    MOST_BYTES,
    PART_BYTES,
    Bundle,
    parse_bundle,
)
from packager.addons.bundle.verify import verify_bundle
from packager.cli.progress import progress_options, shown_progress
from packager.cli.shared_options import format_option, image_options
from packager.cli.terminal import print_json, print_value, warn
from packager.cli.wiring.settings import Settings, parse_output
from packager.core.errors import UsageError
from packager.core.events import StagesEvent, ignore
from packager.core.files.user_files import read_user_file
from packager.core.image import Platform
from packager.core.references import RegistryTarget
from packager.core.units import decimal, parse_size


@click.group()
def bundle() -> None:
    """Carry images, with all that goes with them, to places without a network.

    A bundle is a directory: the images as an OCI layout with signatures and attached documents,
    wheels of tools, cached results, catalogs, and a manifest with the SHA-256 of every file.
    """


directory_argument = click.argument("directory", type=click.Path(path_type=Path))
keys_option = click.option(
    "--key",
    "keys",
    multiple=True,
    metavar="FILE",
    help="Public key in PEM that must have signed the manifest; of several any one.",
)


@bundle.command()
@click.argument("images", metavar="IMAGE...", nargs=-1, required=True)
@click.option(
    "-o",
    "--output",
    "directory",
    type=click.Path(path_type=Path),
    required=True,
    metavar="DIR",
    help="Directory of the bundle.",
)
@click.option(
    "--tool",
    "tools",
    multiple=True,
    metavar="NAME",
    help="Take the wheels of this tool along, for machines like this one; repeatable.",
)
@click.option("--cache", "with_cache", is_flag=True, help="Take all cached results along.")
@click.option(
    "--catalog",
    "catalogs",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Take these catalog rows along; repeatable.",
)
@click.option(
    "--since",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Leave out what this bundle.json of an earlier bundle has.",
)
@click.option(
    "--part-size",
    default="4GB",
    show_default=True,
    metavar="SIZE",
    help="Largest file; larger blobs are cut. FAT32 holds less than 4 GiB.",
)
@click.option(
    "--sign",
    "signing_key",
    metavar="KEY",
    help="Sign the manifest: a key as of `packager sign --key`.",
)
@image_options
@progress_options
@format_option
def create(
    images: tuple[str, ...],
    directory: Path,
    tools: tuple[str, ...],
    with_cache: bool,
    catalogs: tuple[Path, ...],
    since: Path | None,
    part_size: str,
    signing_key: str | None,
    platform: Platform,
    progress: str,
    quiet: bool,
    output_format: str,
    **given: Any,
) -> None:
    """Make a bundle of images; print its directory.

    Each weight is read once and written once.  The same command goes on where it was killed.

    \b
    packager bundle create REGISTRY/models/tiny:1 -o bundle
    packager bundle create oci:out -o next --since bundle/bundle.json --tool llmcompressor
    """
    from packager.addons.bundle.contents import add_catalog, add_wheels
    from packager.addons.bundle.create import Making, add_images, begun, finish
    from packager.addons.bundle.signing import sign_bundle
    from packager.addons.bundle.wiring import add_cache, image_writers
    from packager.cli.wiring.signing import signer_for
    from packager.cli.wiring.techniques import environments_for

    earlier = None
    if since is not None:
        hint = "name the bundle.json of an earlier bundle"
        data = read_user_file(since, what="the manifest", hint=hint, max_bytes=MOST_BYTES)
        earlier = parse_bundle(data, str(since))
    targets = tuple(map(parse_output, images))
    signer = signer_for(signing_key, os.environ) if signing_key is not None else None

    def sign_with(bundled: Bundle, manifest: bytes) -> None:
        if signer is not None:
            sign_bundle(directory, bundled, manifest, signer)

    with shown_progress(progress, quiet=quiet, as_json=output_format == "json") as on_event:
        on_event(StagesEvent(stages=("image", "layers", "publish", "wheels", "manifest")))
        settings = Settings(on_event=on_event, on_warning=warn, **given)
        making = Making(
            directory=directory,
            part_bytes=_part_bytes(part_size),
            since=earlier,
            on_event=on_event,
            on_warning=warn,
        )
        environments = environments_for(settings)
        wanted = [environments.tool(name) for name in tools]
        opened, writes_to = image_writers(settings)
        with begun(making):
            rows = add_images(making, targets, platform, opened, writes_to)
            add_wheels(directory, wanted, on_event)
            if with_cache:
                add_cache(making, settings)
            add_catalog(directory, catalogs)
            made = finish(making, rows, sign_with)
    if output_format == "json":
        print_json(
            {"directory": str(directory), "bytes": made.size, **made.model_dump(mode="json")}
        )
        return
    print_value(str(directory))


def _part_bytes(text: str) -> int:
    size = parse_size(text)
    if not isinstance(size, int) or size < LEAST_PART_BYTES:
        raise UsageError(
            f"invalid part size {text!r}: expected at least {decimal(LEAST_PART_BYTES)}",
            hint=f"{decimal(PART_BYTES)} is the default: FAT32 holds it",
        )
    return size


@bundle.command()
@directory_argument
@keys_option
@progress_options
@format_option
def verify(
    directory: Path, keys: tuple[str, ...], progress: str, quiet: bool, output_format: str
) -> None:
    """Compare every file of a bundle with its manifest; print the images' digests.

    \b
    packager bundle verify bundle --key image-key.pub
    """
    from packager.images.signatures.verifying import PublicKey

    public = tuple(map(PublicKey, keys))
    with shown_progress(progress, quiet=quiet, as_json=output_format == "json") as on_event:
        found = verify_bundle(directory, on_event, keys=public)
    if output_format == "json":
        print_json(found.model_dump(mode="json"))
        return
    for one in found.images:
        print_value(f"{one.name}@{one.digest}")


@bundle.command()
@directory_argument
@click.argument("registry", metavar="REGISTRY[/PREFIX]")
@keys_option
@image_options
@progress_options
@format_option
def load(
    directory: Path,
    registry: str,
    keys: tuple[str, ...],
    platform: Platform,
    progress: str,
    quiet: bool,
    output_format: str,
    **given: Any,
) -> None:
    """Push the images of a bundle to a registry, with what is attached; print their digests.

    Layers are compared with their digests while they are sent; tags come last.  What the registry
    has is not sent.

    \b
    packager bundle load bundle REGISTRY
    packager bundle load bundle REGISTRY/mirror --key image-key.pub
    """
    from packager.addons.bundle.load import load_image, open_bundled
    from packager.cli.wiring.images import image_services_for
    from packager.cli.wiring.registries import registry_clients
    from packager.images.signatures.verifying import PublicKey

    public = tuple(map(PublicKey, keys))
    with shown_progress(progress, quiet=quiet, as_json=output_format == "json") as on_event:
        found = verify_bundle(directory, on_event, keys=public, is_read=False)
        loaded = []
        for one in found.images:
            target = parse_output(f"{registry.rstrip('/')}/{one.name}")
            if not isinstance(target, RegistryTarget):
                raise UsageError(
                    f"{registry!r} is not a registry", hint="name HOST[:PORT][/PREFIX]"
                )
            on_event(StagesEvent(stages=("layers", "publish")))
            settings = Settings(outputs=(target,), on_event=on_event, on_warning=warn, **given)
            services = image_services_for(settings)
            clients = registry_clients(settings)()
            opened = open_bundled(
                directory, found, one, platform, clients=clients, into=target.image
            )
            loaded.append(load_image(opened, services.write, services.attach, warn))
    if output_format == "json":
        print_json(loaded)
        return
    for name in loaded:
        print_value(name)


@bundle.command()
@directory_argument
@format_option
def env(directory: Path, output_format: str) -> None:
    """Print the variables with which tools are installed out of a bundle, without a network.

    A shell reads them: `. <(packager bundle env DIRECTORY)`.

    \b
    packager bundle env bundle > bundle.env
    """
    verify_bundle(directory, ignore, is_read=False)
    settings = settings_of(directory)
    if output_format == "json":
        print_json(dict(settings))
        return
    for line in shell_lines(settings):
        print_value(line)

"""Loading a bundle into a registry: blobs first, tags last; what is there is not sent."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from packager.addons.bundle.manifest import IMAGES, Bundle, BundledImage
from packager.core.errors import NotFound
from packager.core.image import Blob, Descriptor, Platform
from packager.core.references import LayoutTarget, Reference
from packager.images.copy import Attach, Write, copy_attached, copy_image
from packager.images.opened import OpenImage, Warn, open_layout
from packager.images.registry.clients import RegistryClients
from packager.images.registry.reader import registry_blob


def open_bundled(
    directory: Path,
    bundle: Bundle,
    image: BundledImage,
    platform: Platform,
    *,
    clients: RegistryClients,
    into: Reference,
) -> OpenImage:
    """Open an image of a bundle; what earlier bundles hold must be in its repository.

    Raises `NotFound` for what is nowhere, before a byte is sent.
    """
    target = LayoutTarget.at(directory / IMAGES).with_tag(image.tag)
    found = open_layout(target, platform)
    if found.image.digest != image.digest:
        raise NotFound(
            f"{image.name!r} of the bundle is {found.image.digest}, not {image.digest}",
            hint="`packager bundle verify` says which files to copy again",
        )

    def locate(descriptor: Descriptor) -> Blob:
        if descriptor.digest.removeprefix("sha256:") not in bundle.earlier:
            return found.locate(descriptor)
        client = clients.at(into.host)
        if not client.has_blob(into.repository, descriptor.digest, descriptor.size):
            raise NotFound(
                f"{image.name!r} needs {descriptor.digest}, which neither the bundle nor "
                f"{into.name!r} has",
                hint="load the earlier bundle first: this one was made --since it",
            )
        return registry_blob(into.name, descriptor.digest, descriptor.size)

    return replace(found, locate=locate)


def load_image(opened: OpenImage, write: Write, attach: Attach, warn: Warn) -> str:
    """Write an image and what is attached to it; return the name of where it is."""
    written, _ = copy_image(opened, write)
    copy_attached(opened, written, attach, warn)
    return f"{written.refs[0].name}@{written.refs[0].digest}"

"""Services of bundles: what opens images and writes them, the cache that is taken along."""

from __future__ import annotations

from collections.abc import Callable

from packager.addons.bundle.create import Copy, Making
from packager.addons.bundle.manifest import CACHE
from packager.addons.bundle.sink import BundleSink
from packager.cli.plugins.contexts import ReadContext
from packager.cli.wiring.opened import open_with_event
from packager.cli.wiring.outputs import write_out
from packager.cli.wiring.registries import RegistryBlobs, registry_clients
from packager.cli.wiring.settings import Settings
from packager.core.image import Platform
from packager.core.references import ImageTarget
from packager.images.blobs import BlobReader
from packager.images.copy import Write
from packager.images.opened import OpenImage


def image_writers(
    settings: Settings,
) -> tuple[Callable[[ImageTarget, Platform], OpenImage], Copy]:
    """Return what opens images, and what writes one to a sink."""
    clients = registry_clients(settings)
    reader = BlobReader((RegistryBlobs(clients),))
    read = ReadContext(clients=clients)

    def writes_to(sink: BundleSink) -> Write:
        return lambda image, sealed: write_out(image, [sink], reader, settings, sealed=sealed)

    return (
        lambda target, platform: open_with_event(target, platform, read, settings.on_event),
        writes_to,
    )


def add_cache(making: Making, settings: Settings) -> None:
    """Write all entries of this machine's cache, each as an artifact of a layout."""
    from packager.cli.wiring.caches import artifacts_dir, open_artifact_cache, signer_for
    from packager.optimize.cache.errors import explained_cache_errors
    from packager.optimize.cache.oci import tag_of
    from packager.optimize.cache.operations import CachePlace

    with explained_cache_errors():
        opened = open_artifact_cache(settings)
        place = CachePlace(artifacts_dir(settings), opened, signer_for(settings))
        found = [place.find(f"{one.kind}/{one.key}") for one in place.listed()]
        place.export_to_images(found, lambda entry: making.sink(CACHE, tag_of(entry)))

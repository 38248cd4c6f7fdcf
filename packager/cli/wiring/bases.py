"""Base images: serving bases that packager builds itself, and the files of a base's layers."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from packager.cli.wiring.caches import cache_dir
from packager.cli.wiring.settings import Settings
from packager.core.events import Event, EventSink, StagesEvent, StepEvent, working
from packager.core.image import BaseImage, Platform

if TYPE_CHECKING:
    from packager.images.blobs import BlobReader
    from packager.images.rootfs.reading import LayerReader
    from packager.images.rootfs.tree import ImageFiles
    from packager.images.sbom.components import Component

_EMBEDDED = "embedded:"


def build_missing_base(
    reference: str,
    say: Callable[[str], None],
    on_event: EventSink,
    platform: Platform | None = None,
) -> None:
    """Build the base of an `embedded:` reference if it is missing; it is kept.

    Without root nothing is built: reading the base then fails with the command that builds it.
    """
    name = reference.removeprefix(_EMBEDDED)
    if name == reference:
        return
    from packager.images.bases.embedded import BASES, build_base, find_built

    if name not in BASES or find_built(name, platform) or os.geteuid() != 0:
        return
    say(f"building the serving base {name!r}, once: some minutes and 7 GB of disk meanwhile")
    build_base(name, platform, on_event=_of_the_base(on_event), say=say)


def layer_reader(settings: Settings, reader: BlobReader, *, unproven: bool = False) -> LayerReader:
    """Return what reads the entries of layers, and keeps them beside the artifact cache."""
    from packager.images.rootfs.reading import LayerReader
    from packager.images.rootfs.store import ListingStore

    store = ListingStore(cache_dir(settings) / "layers")
    return LayerReader(reader.chunks, store, settings.on_event, unproven=unproven)


def read_base(settings: Settings, reader: BlobReader, base: BaseImage) -> ImageFiles:
    """Return the files of a base image; its layers are read on first use."""
    from packager.images.rootfs.tree import ImageFiles

    layers = layer_reader(settings, reader)
    return ImageFiles(lambda wanted: layers.tree_of(base.reference, base.layers, wanted))


def base_packages(settings: Settings, reader: BlobReader, base: BaseImage) -> tuple[Component, ...]:
    """Return a base's packages where they are asked for: its layers are read once per digest."""
    if settings.sbom_base != "read" or not base.layers:
        return ()
    from packager.images.sbom.kept_packages import PackageStore
    from packager.images.sbom.packages import packages_of

    store = PackageStore(cache_dir(settings) / "base-packages")
    found = store.get(base.digest)
    if found is None:
        with working(settings.on_event, "base packages", base.reference):
            found = packages_of(base.layers, reader.chunks)
        store.put(base.digest, found)
    return found


def _of_the_base(on_event: EventSink) -> EventSink:
    """Return a receiver that renames the builder's stages; an image's build also has `layers`."""

    def tell(event: Event) -> None:
        if isinstance(event, StagesEvent):
            event = StagesEvent(stages=tuple(f"base {name}" for name in event.stages))
        elif isinstance(event, StepEvent):
            event = replace(event, step=f"base {event.step}")
        on_event(event)

    return tell

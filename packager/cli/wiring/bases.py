"""Base images: serving bases that packager builds itself, and what the layers of any hold."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from packager.cli.wiring.caches import cache_dir
from packager.cli.wiring.settings import Settings
from packager.core.events import Event, EventSink, StagesEvent, StepEvent
from packager.core.image import BaseImage
from packager.images.bases.embedded import BASES, build_base, find_built

if TYPE_CHECKING:
    from packager.images.blobs import BlobReader
    from packager.images.rootfs.reading import LayerReader
    from packager.images.rootfs.tree import ImageFiles

_EMBEDDED = "embedded:"


def build_missing_base(reference: str, say: Callable[[str], None], on_event: EventSink) -> None:
    """Build the base of an `embedded:` reference that was never built; it is kept for good.

    Without the rights to do so nothing is done: who reads the base tells how it is built.
    """
    name = reference.removeprefix(_EMBEDDED)
    if name == reference or name not in BASES or find_built(name) or os.geteuid() != 0:
        return
    say(f"building the serving base {name!r}, once: some minutes and 7 GB of disk meanwhile")
    build_base(name, on_event=_of_the_base(on_event), say=say)


def layer_reader(settings: Settings, reader: BlobReader, *, unproven: bool = False) -> LayerReader:
    """Return what reads the entries of layers, and keeps them beside the artifact cache."""
    from packager.images.rootfs.reading import LayerReader
    from packager.images.rootfs.store import ListingStore

    store = ListingStore(cache_dir(settings) / "layers")
    return LayerReader(reader.chunks, store, settings.on_event, unproven=unproven)


def read_base(settings: Settings, reader: BlobReader, base: BaseImage) -> ImageFiles:
    """Return the files of a base image, whose layers are read when something is asked."""
    from packager.images.rootfs.tree import ImageFiles

    layers = layer_reader(settings, reader)
    return ImageFiles(lambda wanted: layers.tree_of(base.reference, base.layers, wanted))


def _of_the_base(on_event: EventSink) -> EventSink:
    """Return a receiver of the builder's stages; a build of an image has `layers` of its own."""

    def tell(event: Event) -> None:
        if isinstance(event, StagesEvent):
            event = StagesEvent(stages=tuple(f"base {name}" for name in event.stages))
        elif isinstance(event, StepEvent):
            event = replace(event, step=f"base {event.step}")
        on_event(event)

    return tell

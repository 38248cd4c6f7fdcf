"""Images that exist, opened wherever they are."""

from __future__ import annotations

from packager.cli.plugins.contexts import ReadContext
from packager.cli.plugins.tables import IMAGES
from packager.core.errors import UsageError
from packager.core.events import EventSink, working
from packager.core.image import Platform
from packager.core.references import ImageTarget
from packager.images.opened import OpenImage


def open_image(target: ImageTarget, platform: Platform, context: ReadContext) -> OpenImage:
    """Open an existing image, in the store that its target names."""
    if target.scheme not in IMAGES:
        raise UsageError(
            f"{target.text!r} holds no image",
            hint="name an image as oci:DIR, docker:NAME:TAG or HOST/REPOSITORY:TAG",
        )
    return IMAGES.of_target(target).make(target, platform, context)


def open_with_event(
    target: ImageTarget, platform: Platform, context: ReadContext, on_event: EventSink
) -> OpenImage:
    """Open an image, and report it as an event while it is opened."""
    with working(on_event, "image", target.text):
        return open_image(target, platform, context)

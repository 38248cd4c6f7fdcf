"""Images that exist, opened wherever they are."""

from __future__ import annotations

from dataclasses import replace

from packager.cli.plugins.contexts import ReadContext
from packager.cli.plugins.tables import IMAGES
from packager.core.errors import NotFound, Unavailable, UsageError
from packager.core.events import EventSink, working
from packager.core.image import Platform
from packager.core.references import ImageTarget, RegistryTarget
from packager.images.opened import OpenImage
from packager.images.target import ENGINE, names_registry


def open_image(target: ImageTarget, platform: Platform, context: ReadContext) -> OpenImage:
    """Open an existing image, in the store that its target names."""
    if target.scheme not in IMAGES:
        raise UsageError(
            f"{target.text!r} holds no image",
            hint="name an image as oci:DIR, docker:NAME:TAG or HOST/REPOSITORY:TAG",
        )
    if target.scheme == ENGINE and "@" in target.rest:
        from packager.cli.run.images import started_image
        from packager.images.docker_engine import connect_engine

        target = replace(target, rest=started_image(target.text, "inspect", connect_engine))
    try:
        return IMAGES.of_target(target).make(target, platform, context)
    except (NotFound, Unavailable) as error:
        if isinstance(target, RegistryTarget) and not names_registry(target.rest):
            error.hint = f"Docker Hub was asked; in the Docker Engine it is docker:{target.text}"
        raise


def open_with_event(
    target: ImageTarget, platform: Platform, context: ReadContext, on_event: EventSink
) -> OpenImage:
    """Open an image, and report it as an event while it is opened."""
    with working(on_event, "image", target.text):
        return open_image(target, platform, context)

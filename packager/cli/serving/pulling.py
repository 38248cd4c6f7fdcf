"""Pulls an image into the Docker Engine, and measures when its bytes arrived.

The engine reports each layer as downloading, downloaded, unpacking and complete. It unpacks layers
in order while others still download, so two times are measured: until the last byte arrived, and
from then until unpacking ended.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from packager.core.errors import PackagerError, SmokeFailed
from packager.images.docker_engine import engine_reason

_DOWN = frozenset(("Download complete", "Verifying Checksum"))


def not_pulled(image: str, what: str, reason: str, hint: str) -> SmokeFailed:
    """Return an error: the engine could not pull an image, or not remove the one that it had."""
    return SmokeFailed(f"the engine cannot {what} {image!r}: {reason}", hint=hint, code="NotPulled")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pulled:
    """A pull that ended."""

    down_s: float  # until the last byte had come
    unpack_s: float  # from then on
    bytes: int  # received
    known_layers: int  # that the engine had


def remove_image(engine: Any, image: str) -> None:
    """Remove an image from the engine, where it has it; raise `not_pulled` where it cannot."""
    from docker.errors import APIError, ImageNotFound

    try:
        engine.images.remove(image)
    except ImageNotFound:
        return
    except APIError as error:
        raise not_pulled(
            image, "remove", engine_reason(error), "end the containers that run it"
        ) from error


def pull_image(
    engine: Any,
    image: str,
    on_progress: Callable[[str], None],
    clock: Callable[[], float] = time.monotonic,
) -> Pulled:
    """Pull an image and time it; raise `not_pulled` with the engine's reason."""
    from docker.errors import APIError

    on_progress(f"pulling {image}")
    try:
        return time_pull(image, engine.api.pull(image, stream=True, decode=True), clock)
    except APIError as error:
        raise not_pulled(
            image, "pull", engine_reason(error), "see that the registry has it"
        ) from error


def time_pull(
    image: str, events: Iterable[Mapping[str, Any]], clock: Callable[[], float]
) -> Pulled:
    """Time a pull by the engine's events as they come."""
    began = last_byte = clock()
    sizes: dict[str, int] = {}
    known: set[str] = set()
    for event in events:
        now = clock()
        if isinstance(said := event.get("error"), str):
            raise not_pulled(
                image, "pull", said, "see that the registry has it, and `docker login`"
            )
        status, layer = event.get("status"), str(event.get("id") or "")
        if status == "Already exists":
            known.add(layer)
        if status == "Downloading":
            detail = event.get("progressDetail")
            total = detail.get("total") if isinstance(detail, Mapping) else None
            if isinstance(total, int) and total > 0:
                sizes[layer] = total
            last_byte = now
        elif status in _DOWN and layer not in known:
            last_byte = now
    ended = clock()
    return Pulled(
        down_s=last_byte - began,
        unpack_s=ended - last_byte,
        bytes=sum(sizes.values()),
        known_layers=len(known),
    )


def has_image(engine: Any, image: str) -> bool:
    """Return whether the engine has an image of that name."""
    from packager.cli.serving.containers import find_image

    with suppress(PackagerError):
        find_image(engine, image)
        return True
    return False

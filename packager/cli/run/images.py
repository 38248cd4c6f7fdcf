"""Images of packager in a Docker Engine, found by their labels.

Their labels are data of whoever built them: what is not as packager writes it counts as absent.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packager.cli.serving.containers import digests_of, find_image
from packager.cli.serving.opening import is_address
from packager.cli.wiring.settings import parse_started, state_dir
from packager.core.documents import NotStrict, parse_object
from packager.core.errors import NotFound, UsageError
from packager.core.instance import LOCAL
from packager.core.stopping import PLATFORM_GRACE_S
from packager.pipeline.records import find_record, load_record

_RECORD = "dev.packager.record"


@dataclass(frozen=True, slots=True, kw_only=True)
class PackagedImage:
    """An image of the engine, ready to start."""

    name: str  # as the engine finds it
    model: str  # the name that clients send
    instance: str  # that it was planned for
    grace_s: int
    id: str = ""
    digests: tuple[str, ...] = ()  # `HOST/REPOSITORY@DIGEST`, of registries that it came from


def find_packaged(engine: Any, text: str, state_dir: Path) -> PackagedImage:
    """Find an image that packager built; `NAME:TAG@DIGEST` must be of that digest.

    Raises `NotFound`, and `UsageError` for what cannot be run.
    """
    name, found = find_pinned(engine, parse_started(text, "run"), state_dir)
    labels = (found.attrs.get("Config") or {}).get("Labels") or {}
    if _RECORD not in labels:
        raise UsageError(
            f"{name!r} was not built by packager",
            hint="start it with `docker run`, or give the model: `packager run MODEL`",
        )
    if _requested(labels).get("weights") == "mounted":
        raise UsageError(
            f"{name!r} has no weights: it was built with --weights mounted",
            hint="build it without --weights mounted to run it here",
        )
    record = find_record(state_dir, digests_of(found))
    runtime = load_record(record).runtime if record else None
    return PackagedImage(
        name=name,
        model=labels.get("org.opencontainers.image.title", ""),
        instance=labels.get("dev.packager.instance", LOCAL),
        grace_s=(runtime.grace_s if runtime else None) or PLATFORM_GRACE_S,
        id=str(found.id),
        digests=tuple(map(str, found.attrs.get("RepoDigests") or ())),
    )


def started_image(text: str, command: str, connect: Callable[[], Any]) -> str:
    """Parse an image, or the URL of a server, that a command measures; return its name there."""
    if is_address(text):
        return text
    name = parse_started(text, command)
    return find_pinned(connect(), name, state_dir(os.environ))[0] if "@" in name else name


def find_pinned(engine: Any, reference: str, state_dir: Path) -> tuple[str, Any]:
    """Return the image and the name it is found by.

    An engine that took an image from packager may know only its name or its configuration's digest:
    the build record relates the digests.
    """
    name, at, digest = reference.partition("@")
    try:
        return reference, find_image(engine, reference)
    except NotFound:
        if not at:
            raise
    found = find_image(engine, name)
    record = find_record(state_dir, (digest,))
    known = {digest, load_record(record).config_digest} if record else {digest}
    if known.isdisjoint(digests_of(found)):
        raise NotFound(
            f"the engine does not know {name!r} as {digest}",
            hint=f"docker:{name} is the image that has the name now",
        )
    return name, found


def _requested(labels: Mapping[str, str]) -> Mapping[str, Any]:
    """Return the request in an image's label; {} where it cannot be read."""
    try:
        asked = parse_object(labels[_RECORD].encode()).get("request")
    except NotStrict:
        return {}
    return asked if isinstance(asked, dict) else {}

"""The policy of a command: which it is, what it lets pass, and where skipping it is recorded."""

from __future__ import annotations

import datetime
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from packager.cli.plugins.contexts import ReadContext
from packager.cli.wiring.opened import open_image, open_with_event
from packager.cli.wiring.registries import registry_clients
from packager.cli.wiring.settings import Settings, parse_output, state_dir
from packager.core.errors import NotFound, UsageError
from packager.core.files.atomic import explain_disk_errors, user_dir
from packager.core.image import Platform
from packager.core.references import ImageTarget, RegistryTarget
from packager.images.opened import OpenImage

if TYPE_CHECKING:
    from packager.images.signatures.policy import Policy

LOG = "policy.log"


def policy_place(environment: Mapping[str, str]) -> Path:
    """Return where the user's policy is."""
    return user_dir("config", environment) / "packager" / "policy.toml"


def policy_of(settings: Settings, name: str) -> Policy | None:
    """Return the policy that holds; None where there is none, or it is skipped for `name`.

    Skipping one that is there is warned of and recorded.
    """
    place = _place(settings)
    if place is None:
        return None
    if settings.policy.is_skipped:
        settings.on_warning(f"{name!r} is not held to the policy {str(place)!r}: --no-policy")
        _record(settings, f"not held to {place}: {name}")
        return None
    return _read(place)


def open_allowed(
    target: ImageTarget, platform: Platform, context: ReadContext, settings: Settings
) -> OpenImage:
    """Open an image that the command's policy lets pass; raise `ModelRefused` otherwise."""
    found = open_with_event(target, platform, context, settings.on_event)
    check_opened(target, found, settings)
    return found


def check_opened(target: ImageTarget, found: OpenImage, settings: Settings) -> None:
    """Check an opened image by the policy; raise `ModelRefused` where it is against it."""
    if _place(settings) is None:
        return
    from packager.images.signatures.policy import canonical_name, check_image

    name = canonical_name(target)
    policy = policy_of(settings, f"{name}@{found.image.digest}")
    if policy is not None:
        check_image(policy, name, found.signed_of(settings.on_warning))


def check_base(target: ImageTarget, platform: Platform, digest: str, settings: Settings) -> None:
    """Check a base by the policy: the very image of this digest, of which layers are taken.

    Bases that packager builds here, and the empty one, need no proof.
    """
    if _place(settings) is None or target.scheme in _OWN:
        return
    pinned = target.with_digest(digest) if isinstance(target, RegistryTarget) else target
    found = open_image(pinned, platform, ReadContext(clients=registry_clients(settings)))
    if found.image.digest != digest:
        raise NotFound(f"the base {target.text!r} changed while it was looked at", hint="try again")
    check_opened(target, found, settings)


def check_running(name: str, digests: Sequence[str], settings: Settings) -> bool:
    """Check an image of the Docker Engine by the policy; return whether there is one.

    The Engine keeps no signatures: those count that are in the registry that it came from, at one
    of the `digests` that the Engine states, `HOST/REPOSITORY@DIGEST`.
    """
    policy = policy_of(settings, f"docker:{name}")
    if policy is None:
        return False
    context = ReadContext(clients=registry_clients(settings))
    for text in digests:
        target = parse_output(text)
        if isinstance(target, RegistryTarget):
            check_opened(target, open_image(target, Platform(), context), settings)
            return True
    from packager.images.signatures.policy import check_image

    check_image(policy, f"docker:{name}", {})
    return True


def stated_policy(settings: Settings) -> str:
    """Return what provenance says of the policy: its digest, that it was skipped, or ""."""
    place = _place(settings)
    if place is None:
        return ""
    return "skipped" if settings.policy.is_skipped else f"sha256:{_read(place).digest}"


def named_policy(file: Path | None, environment: Mapping[str, str]) -> Policy:
    """Return the policy of a file, or the user's; raise `UsageError` where there is none."""
    place = file or policy_place(environment)
    if file is None and not place.exists():
        raise UsageError(
            "neither --key nor --policy is given, and you have no policy",
            hint=f"name a key or a policy, or write {str(place)!r}",
        )
    return _read(place)


_OWN = ("scratch", "embedded")  # bases that packager makes


def _place(settings: Settings) -> Path | None:
    """Return where the policy is that holds for a command, also if it is skipped."""
    if not settings.policy.is_enforced:
        return None
    standing = policy_place(settings.environment)
    return settings.policy.file or (standing if standing.exists() else None)


def _read(place: Path) -> Policy:
    from packager.images.signatures.policy import read_policy

    return read_policy(place)


def _record(settings: Settings, text: str) -> None:
    """Add a line to the log of skipped policies."""
    directory = state_dir(settings.environment)
    moment = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    with explain_disk_errors(directory):
        directory.mkdir(parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(directory / LOG, flags, 0o600), "a") as file:
            file.write(f"{moment} {text!r}\n")

"""The servers to compare: one with its draft, one without; containers of ours or anybody's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from packager.cli.serving.acceptance import speculates
from packager.cli.serving.containers import find_image
from packager.cli.serving.opening import MeasuredServer as MeasuredServer
from packager.cli.serving.opening import Opener as Opener
from packager.cli.serving.opening import OpenServer as OpenServer
from packager.cli.serving.opening import is_address as is_address
from packager.core.errors import UsageError
from packager.engines.without_draft import (
    SWITCH,
    draft_of,
    environment_of,
    precision_of,
    without_draft,
)

AUTO, NONE = "auto", "none"


def no_draft(shown: str) -> UsageError:
    """Return an error: the target has no draft to measure."""
    return UsageError(
        f"{shown!r} serves without a draft",
        hint="build it with --draft, or serve it with one; `packager smoke` asks any image",
        code="NoDraft",
    )


def still_speculates(shown: str, *, switched_off: bool) -> UsageError:
    """Return an error: the server that should run without a draft has one."""
    hint = "name an image or a server without one with --plain, or say --plain none"
    return UsageError(
        f"the plain server {shown!r} has a draft, too",
        hint=f"its launcher does not know {SWITCH} yet: build it again, or {hint}"
        if switched_off
        else hint,
        code="StillSpeculates",
    )


def targets(
    name: str, plain: str, env: Mapping[str, str], connect: Callable[[], Any]
) -> tuple[MeasuredServer, MeasuredServer | None]:
    """Return the targets with and without the draft; raises `UsageError` where there is none."""
    config = {} if is_address(name) else find_image(connect(), name).attrs.get("Config") or {}
    if not is_address(name):
        _check_draft(name, config)
    first = MeasuredServer(name=name, env=env, precision=precision_of(config))
    if plain == NONE or (plain == AUTO and is_address(name)):
        return first, None
    if plain != AUTO:
        return first, MeasuredServer(name=plain, env=env)
    changes = without_draft(config)
    if changes is None:
        raise UsageError(
            f"no variable switches off the draft of {name!r}",
            hint="name the same image built with --draft none (it sends the configuration alone): "
            "--plain IMAGE, or --plain none to measure it alone",
        )
    return first, MeasuredServer(
        name=name, env={**env, **changes}, shown=f"{name} without its draft"
    )


def check_speculation(found: OpenServer, metrics: str, *, wanted: bool, switched_off: bool) -> None:
    """Refuse a server whose metrics say that it is not what it is measured for."""
    is_speculating = speculates(metrics)
    if wanted and is_speculating is False:
        raise no_draft(found.shown)
    if not wanted and is_speculating:
        raise still_speculates(found.shown, switched_off=switched_off)


def _check_draft(name: str, config: Mapping[str, Any]) -> None:
    """Refuse an image of ours that was built without a draft; others are checked when they run."""
    if draft_of(config) == "" and not any("SPECULA" in one for one in environment_of(config)):
        raise no_draft(name)

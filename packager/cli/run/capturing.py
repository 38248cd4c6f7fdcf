"""What a container of ours needs so that its server captures: a mount, modules and a middleware."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from packager.cli.capture_options import TrafficCapture
from packager.cli.run.containers import ContainerSpec
from packager.cli.serving.containers import find_image
from packager.core import capture
from packager.core.capture.settings import (
    DIRECTORY,
    MIDDLEWARE,
    MODULE_DIR,
    MODULES,
    REDACT_FILE,
    VARIABLE,
    CaptureSettings,
)
from packager.core.engine_rows import engine_row
from packager.core.errors import UsageError
from packager.core.serving import SERVING_DIR
from packager.core.share import share_dir

_PATH = "PYTHONPATH"


def with_capture(engine: Any, wanted: ContainerSpec, found: TrafficCapture | None) -> ContainerSpec:
    """Return the container of a server that captures; raise `UsageError` where it cannot."""
    if found is None:
        return wanted
    config = find_image(engine, wanted.image).attrs.get("Config") or {}
    labels = config.get("Labels") or {}
    is_ours = f"{SERVING_DIR}/launch.py" in (config.get("Entrypoint") or ())
    if not engine_row(labels.get("dev.packager.family", "")).takes_middleware or not is_ours:
        raise UsageError(
            f"the server of {wanted.image!r} takes no middleware that captures",
            hint=f"`packager deploy compose apply docker:{wanted.image} --capture DIR` captures "
            "before any server",
        )
    _make_writable(found.directory, str(config.get("User") or ""))
    settings = CaptureSettings(
        name=f"{wanted.name}/all",
        share=found.share,
        command=REDACT_FILE if found.redact_file else "",
    )
    variables = dict(one.partition("=")[::2] for one in config.get("Env") or ())
    paths = (MODULES, wanted.env.get(_PATH) or variables.get(_PATH, ""))
    binds = [
        f"{found.directory}:{DIRECTORY}:rw",
        f"{Path(capture.__file__).parent}:{MODULES}/{MODULE_DIR}:ro",
        f"{share_dir('containers') / 'serving/vllm/capture_adapter.py'}"
        f":{MODULES}/capture_adapter.py:ro",
    ]
    if found.redact_file is not None:
        binds.append(f"{found.redact_file}:{REDACT_FILE}:ro")
    added = {_PATH: ":".join(filter(None, paths)), VARIABLE: settings.text()}
    return replace(
        wanted,
        env={**wanted.env, **added},
        binds=tuple(binds),
        arguments=("--middleware", MIDDLEWARE),
    )


def _make_writable(directory: Path, user: str) -> None:
    """See that a directory is its container's user's; raise `UsageError` where it cannot be."""
    owner, _, group = user.partition(":")
    if not owner.isdecimal() or owner == "0" or directory.stat().st_uid == int(owner):
        return
    if os.geteuid() == 0 and not any(directory.iterdir()):
        os.chown(directory, int(owner), int(group) if group.isdecimal() else -1)
        return
    raise UsageError(
        f"the server runs as user {owner}, who cannot write to {str(directory)!r}",
        hint=f"sudo chown -R {owner} {directory}",
    )

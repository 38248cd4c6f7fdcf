"""Capture of a server's traffic onto a claim: a middleware, its modules and mounts of the pod."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from packager.addons.deploy.kubernetes.spec import KubernetesSpec
from packager.core import capture
from packager.core.capture.settings import (
    DIRECTORY,
    MIDDLEWARE,
    MODULE_DIR,
    MODULES,
    VARIABLE,
    CaptureSettings,
)
from packager.core.deployment import Deployment
from packager.core.engine_rows import engine_row
from packager.core.errors import UsageError
from packager.core.share import share_dir

SUFFIX = "-capture"  # of the ConfigMap with the modules
ANNOTATION = "packager.dev/capture"  # of pods: digest of the modules, whose change starts new ones
_PATH = "PYTHONPATH"


def with_capture(deployment: Deployment, wanted: KubernetesSpec) -> Deployment:
    """Return a deployment whose server captures; raise `UsageError` where it cannot."""
    if not wanted.capture:
        return deployment
    if not engine_row(deployment.family).takes_middleware or deployment.nodes > 1:
        raise UsageError(
            f"the server of {deployment.image!r} takes no middleware that captures",
            hint="a vLLM image of ours on one node does; leave --capture out",
        )
    settings = CaptureSettings(name=f"{deployment.name}/all", share=wanted.capture_share)
    before = {**deployment.env, **wanted.env}.get(_PATH, "")
    env = {_PATH: ":".join(filter(None, (MODULES, before))), VARIABLE: settings.text()}
    words: tuple[str, ...] = ("--middleware", MIDDLEWARE)
    if deployment.variables:
        env[f"{deployment.variables}MIDDLEWARE"] = MIDDLEWARE
        words = ()
    return replace(
        deployment,
        env={**deployment.env, **env},
        arguments=(*deployment.arguments, *words),
    )


@cache
def capture_modules() -> Mapping[str, str]:
    """Return the middleware and the modules that it imports, by their file names."""
    adapter = share_dir("containers") / "serving/vllm/capture_adapter.py"
    places = (adapter, *sorted(Path(capture.__file__).parent.glob("*.py")))
    return {place.name: place.read_text(encoding="utf-8") for place in places}


def capture_digest() -> str:
    """Return the identity of the modules."""
    text = json.dumps(capture_modules(), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def capture_volumes(deployment: Deployment, wanted: KubernetesSpec) -> list[dict[str, Any]]:
    """Return the claim, and the modules below the folders from which Python imports them."""
    if not wanted.capture:
        return []
    first, *others = capture_modules()
    paths = {first: first, **{name: f"{MODULE_DIR}/{name}" for name in others}}
    items = [{"key": name, "path": path} for name, path in paths.items()]
    modules = {"name": deployment.name + SUFFIX, "items": items}
    return [
        {"name": "captures", "persistentVolumeClaim": {"claimName": wanted.capture}},
        {"name": "capture-modules", "configMap": modules},
    ]


def capture_mounts(wanted: KubernetesSpec) -> list[dict[str, Any]]:
    """Return where the server sees them."""
    if not wanted.capture:
        return []
    return [
        {"name": "captures", "mountPath": DIRECTORY},
        {"name": "capture-modules", "mountPath": MODULES, "readOnly": True},
    ]

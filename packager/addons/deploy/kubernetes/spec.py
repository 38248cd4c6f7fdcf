"""Desired state of a deployment in a cluster: options, and allowed values of its documents."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from packager.addons.deploy.checks import refuse_odd_image
from packager.addons.deploy.mounted_adapters import MountedAdapter
from packager.addons.deploy.patches import NO_PATCH, Patch
from packager.core.capture.settings import SHARE
from packager.core.errors import UsageError

Version = tuple[int, int]
OLDEST: Version = (1, 31)  # whose schemas the documents are checked against
NEWEST: Version = (1, 37)
DEFAULT: Version = (1, 34)

# Image volumes with `subPath` since 1.33, where the gate still has to be set; on by itself since
# 1.35 (KEP-4639, read 2026-11-22).
IMAGE_VOLUMES: Version = (1, 33)
IMAGE_VOLUMES_ON: Version = (1, 35)

Scaler = Literal["none", "hpa", "keda"]
Storage = Literal["container", "native", "modelcar"]

_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?", re.ASCII)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,255}", re.ASCII)
_KEY = re.compile(r"[A-Za-z0-9._-]{1,253}", re.ASCII)
_LABEL_KEY = re.compile(r"([a-z0-9.-]{1,253}/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?", re.A)
_LABEL = re.compile(r"([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?", re.ASCII)


@dataclass(frozen=True, slots=True)
class SecretKey:
    """One key of a Secret of the cluster."""

    secret: str
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesSpec:
    """Options of a deployment on a cluster."""

    namespace: str = "default"
    version: Version = DEFAULT
    replicas: int = 1
    max_replicas: int = 0  # of an autoscaler; 0: `replicas`, and none is made
    scaler: Scaler = "none"
    queue_target: int = 5  # waiting requests of one replica, above which another is started
    prometheus: str = ""  # address that KEDA queries
    monitor: bool = False  # a ServiceMonitor of the Prometheus operator
    prepull: bool = False  # a DaemonSet that has nodes pull the image ahead
    surge: bool = True  # an update starts the new pod first, which needs a free node
    grace_s: int | None = None  # None: of the image
    shm_bytes: int | None = None
    budget_s: int | None = None  # until a pod that is silent is started anew; None: predicted
    node_selector: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    pull_secret: str = ""
    service_account: str = ""
    writable_root: bool = False  # in spite of an image that needs none
    claim: str = ""  # PersistentVolumeClaim with mounted weights
    capture: str = ""  # PersistentVolumeClaim that requests and answers are written to
    capture_share: float = SHARE  # of the conversations
    weights_image: str = ""  # a view with the weights, mounted as an image volume
    adapters: Mapping[str, MountedAdapter] = field(default_factory=lambda: MappingProxyType({}))
    env: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    secrets: Mapping[str, SecretKey] = field(default_factory=lambda: MappingProxyType({}))
    storage: Storage = "container"  # of KServe
    llm: bool = False  # LLMInferenceService in the place of InferenceService
    region: str = ""  # of HyperPod's bucket
    patch: Patch = NO_PATCH  # of the rendered objects
    force: bool = False  # takes over fields that another manager set


def parse_version(text: str) -> Version:
    """Return `1.34` as numbers; raise `UsageError` for what is not from 1.31 to 1.37."""
    found = re.fullmatch(r"v?1\.(\d{1,2})(\.\d{1,3})?", text)
    version = (1, int(found[1])) if found else (0, 0)
    if not OLDEST <= version <= NEWEST:
        raise UsageError(
            f"{text[:40]!r} is not a version of Kubernetes that documents are made for",
            hint="use 1.31 to 1.37, such as 1.34",
        )
    return version


def check_names(wanted: KubernetesSpec) -> None:
    """Raise `UsageError` for a name that the API would refuse."""
    named = [
        ("namespace", wanted.namespace),
        ("pull secret", wanted.pull_secret),
        ("service account", wanted.service_account),
        ("claim", wanted.claim),
        ("claim of captures", wanted.capture),
        *(("claim", one.source) for one in wanted.adapters.values() if one.is_claim),
        *(("secret", one.secret) for one in wanted.secrets.values()),
    ]
    for what, name in named:
        if name and not (_NAME.fullmatch(name) and ".." not in name):
            raise _not_taken(what, name, "use lower case letters, digits, hyphens and dots")
    refuse_odd_image("--weights-image", wanted.weights_image)
    for one in wanted.adapters.values():
        refuse_odd_image("--adapter", "" if one.is_claim else one.source)
    for name in (*wanted.env, *wanted.secrets):
        if not _VARIABLE.fullmatch(name):
            raise _not_taken("variable", name, "use letters, digits and underscores")
    for secret in wanted.secrets.values():
        if not _KEY.fullmatch(secret.key):
            raise _not_taken("key of a Secret", secret.key, "use letters, digits, dots and hyphens")
    for key, value in wanted.node_selector.items():
        if not _LABEL_KEY.fullmatch(key) or not _LABEL.fullmatch(value):
            raise _not_taken(
                "label", f"{key}={value}", "write KEY=VALUE as `kubectl get nodes` does"
            )


def _not_taken(what: str, name: str, hint: str) -> UsageError:
    return UsageError(f"{what} {name[:80]!r} is not one that Kubernetes takes", hint=hint)

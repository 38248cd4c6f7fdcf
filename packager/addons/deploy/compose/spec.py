"""Desired state of a project of Docker Compose."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from packager.addons.deploy.mounted_adapters import MountedAdapter
from packager.addons.deploy.patches import NO_PATCH, Patch
from packager.core.capture.settings import SHARE
from packager.core.deployment import PORT
from packager.core.errors import UsageError

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureSpec:
    """Capture of the requests and answers of a project."""

    directory: str  # absolute; of this machine
    owner: str  # UID:GID of it, as whom the front writes
    share: float = SHARE  # of the conversations
    redact_file: str = ""  # absolute; program that redacts rows


@dataclass(frozen=True, slots=True, kw_only=True)
class ComposeSpec:
    """Options of a project."""

    replicas: int = 1
    host: str = LOOPBACK  # address of this machine that the port is published at
    host_port: int = PORT
    env: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    passed: tuple[str, ...] = ()  # variables that compose takes from its own environment
    env_files: tuple[str, ...] = ()  # absolute paths; only compose reads them
    secrets: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))  # name → file
    contents: str = ""  # digest of the content of these files; "" if unread
    model_dir: str = ""  # of this machine, with the weights of an image that has none
    draft_dir: str = ""
    adapters: tuple[MountedAdapter, ...] = ()
    devices: tuple[str, ...] = ()  # of this machine, by number or UUID; (): from 0 on
    grace_s: int | None = None  # until a server is killed; None: of the image
    capture: CaptureSpec | None = None
    patch: Patch = NO_PATCH  # of `services.front` and `services.server`, which is every server

    def __post_init__(self) -> None:
        """Raise `UsageError` for what no machine can have."""
        if not 1 <= self.replicas <= 64:
            raise UsageError(
                f"{self.replicas} replicas cannot run on one machine", hint="give 1 to 64"
            )

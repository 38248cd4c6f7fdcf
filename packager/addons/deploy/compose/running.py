"""Containers of a project as the Docker Engine has them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from packager.addons.deploy.compose.composers import SERVICE
from packager.addons.deploy.compose.documents import CONFIG_LABEL
from packager.cli.serving.containers import log_of, reason_of
from packager.core.errors import SmokeFailed

_ANY = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}  # reached over loopback


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A container of a project."""

    service: str
    container: Any  # docker-py's
    status: str
    restarts: int
    config: str
    image: str
    address: str = ""  # http://HOST:PORT that it publishes


def is_ready(ready: Any, service: str) -> bool:
    """Return whether the front says that a server answers; `ready` is what it says of each."""
    return isinstance(ready, Mapping) and any(
        answers is True and str(name).rpartition(":")[0] == service
        for name, answers in ready.items()
    )


def running_of(container: Any) -> Running:
    """Return what a container of docker-py is."""
    bound = next((one for one in (container.ports or {}).values() if one), None)
    address = ""
    if bound:
        host, port = bound[0]["HostIp"], bound[0]["HostPort"]
        host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(
            host, f"[{host}]" if ":" in host else host
        )
        address = f"http://{host}:{port}"
    return Running(
        service=container.labels.get(SERVICE, ""),
        container=container,
        status=container.status,
        restarts=int(container.attrs.get("RestartCount") or 0),
        config=container.labels.get(CONFIG_LABEL, ""),
        image=container.attrs["Config"]["Image"],
        address=address,
    )


def ended_error(one: Running) -> SmokeFailed:
    """Return the error of a server that ended, with its log."""
    reason = reason_of(one.container)
    said = f"the server {one.service} ended before it answered"
    return SmokeFailed(
        f"{said}: {reason}" if reason else said,
        hint="its log is above; the servers before it go on",
        log=log_of(one.container),
    )

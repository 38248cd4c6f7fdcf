"""A connection to the Docker Engine that the environment names."""

from __future__ import annotations

import os
from typing import Any
from urllib.parse import urlsplit

from artifact_cache.distribution import install_command
from packager.core.errors import Unavailable
from packager.core.text import quote_answer
from packager.images.registry.origins import is_loopback

_REASON = 4000  # characters of a reason that are shown


def connect_engine(
    *,
    timeout_s: float = 60.0,
    without: str = "or use an oci: or registry output, which need none",
) -> Any:
    """Return a docker-py client whose engine answers; raises where there is none.

    `without` ends the hint: what can be done where none can be had.
    """
    import docker
    from docker.errors import DockerException

    host = os.environ.get("DOCKER_HOST") or "unix:///var/run/docker.sock"
    try:
        # The user's own ssh, so that their keys, hosts and settings are those of `ssh`.
        client = docker.from_env(timeout=timeout_s, use_ssh_client=host.startswith("ssh://"))
        client.ping()
    except (DockerException, OSError, ValueError) as error:  # ValueError: an invalid host
        if "paramiko" in str(error):
            raise Unavailable(
                f"no way to the Docker Engine at {host!r}: docker-py's support of SSH is missing",
                hint=install_command("docker[ssh]", "ssh"),
            ) from error
        raise Unavailable(
            f"no Docker Engine answers at {host!r}",
            hint="start one and set DOCKER_HOST (scripts/docker-engine start does both), "
            f"{without}",
        ) from error
    return client


def is_here(engine: Any) -> bool:
    """Return whether an engine is on this machine: by its socket, a pipe or a loopback address."""
    host = urlsplit(engine.api.base_url).hostname or ""
    return is_loopback(host) or host == "localnpipe"  # docker-py's word for a pipe; of SSH, `ssh`


def engine_reason(error: Any) -> str:
    """Return what a Docker Engine said of a request that failed, without secrets that were sent."""
    return quote_answer(str(getattr(error, "explanation", None) or error), _REASON)

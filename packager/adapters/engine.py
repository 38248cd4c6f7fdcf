"""A connection to the Docker Engine that the environment names."""

from __future__ import annotations

import os
from typing import Any

from packager.errors import Unavailable


def connect_engine(*, timeout_s: float = 60.0) -> Any:
    """Give a docker-py client whose engine answers, or say why there is none."""
    import docker
    from docker.errors import DockerException

    host = os.environ.get("DOCKER_HOST") or "unix:///var/run/docker.sock"
    try:
        # The user's own ssh, so that their keys, hosts and settings are those of `ssh`.
        client = docker.from_env(timeout=timeout_s, use_ssh_client=host.startswith("ssh://"))
        client.ping()
    except (DockerException, OSError, ValueError) as error:  # ValueError: the host is no address
        if "paramiko" in str(error):
            raise Unavailable(
                f"no way to the Docker Engine at {host!r}: docker-py's support of SSH is missing",
                hint="pip install 'packager[ssh]'",
            ) from error
        raise Unavailable(
            f"no Docker Engine answers at {host!r}",
            hint="start one and set DOCKER_HOST (scripts/docker-engine start does both), "
            "or use an oci: or registry output, which need none",
        ) from error
    return client

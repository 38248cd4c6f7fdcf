"""Ports for servers that tests start."""

from __future__ import annotations

import socket


def free_port() -> int:
    """Return a port of loopback that the kernel chose: hardly one that others try meanwhile."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port

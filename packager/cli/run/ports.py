"""Ports of this machine: a free one, and who has one that is not."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from packager.core.errors import Unavailable, UsageError

HOST = "127.0.0.1"
FIRST_PORT = 8080
_TRIED = 100
_LISTENS = "0A"  # the state in /proc/net/tcp


def port_taken(port: int, who: str) -> UsageError:
    """Return an error: the requested port is in use."""
    return UsageError(
        f"port {port} is taken{f' by {who}' if who else ''}",
        hint="choose another with --port, or leave --port out for a free one",
        code="PortTaken",
    )


def is_free(port: int) -> bool:
    """Return whether a server could listen at the port on loopback."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def free_ports(free: Callable[[int], bool] = is_free) -> Iterator[int]:
    """Yield free ports from 8080 on: a port may be taken before it is used. Raise at the end."""
    last = FIRST_PORT + _TRIED - 1
    yield from filter(free, range(FIRST_PORT, last + 1))
    raise Unavailable(
        f"none of the ports {FIRST_PORT} to {last} is free", hint="choose one with --port"
    )


def process_at(port: int, proc: Path = Path("/proc")) -> str:
    """Return a description of the process that listens at a port; "" where it is not visible."""
    sockets = {f"socket:[{inode}]" for inode in _listening(port, proc)}
    for directory in proc.glob("[0-9]*/fd") if sockets else ():
        with suppress(OSError):  # another user's, or over meanwhile
            if any(str(link.readlink()) in sockets for link in directory.iterdir()):
                name = (directory.parent / "comm").read_text(errors="replace").strip()
                return f"{name} (process {directory.parent.name})"
    return ""


def _listening(port: int, proc: Path) -> Iterator[str]:
    """Yield the inodes of the sockets that listen at a port."""
    for table in ("net/tcp", "net/tcp6"):
        with suppress(OSError):
            for line in (proc / table).read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == _LISTENS and int(fields[1].rpartition(":")[2], 16) == port:
                    yield fields[9]

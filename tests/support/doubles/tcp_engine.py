"""A Docker Engine behind another address of this machine, as if it were elsewhere."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress


def address_of_this_machine() -> str:
    """An address that is not loopback; "" where there is none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, suppress(OSError):
        probe.connect(("192.0.2.1", 9))  # sends nothing
        return str(probe.getsockname()[0])
    return ""


@contextmanager
def forwarded(path: str, host: str) -> Iterator[str]:
    """Forward a TCP port of `host` to the socket at `path`; give its `tcp://` address."""
    listening = socket.create_server((host, 0))

    def serve() -> None:
        while True:
            try:
                ours, _ = listening.accept()
            except OSError:
                return
            theirs = socket.socket(socket.AF_UNIX)
            theirs.connect(path)
            for source, target in ((ours, theirs), (theirs, ours)):
                threading.Thread(target=_pump, args=(source, target), daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield f"tcp://{host}:{listening.getsockname()[1]}"
    finally:
        with suppress(OSError):
            listening.shutdown(socket.SHUT_RDWR)
        listening.close()


def _pump(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)
    for end in (source, target):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)

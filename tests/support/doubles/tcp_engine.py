"""A Docker Engine behind another address of this machine, as if it were elsewhere."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from tests.support.doubles.listening import Listener


def address_of_this_machine() -> str:
    """An address that is not loopback; "" where there is none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, suppress(OSError):
        probe.connect(("192.0.2.1", 9))  # sends nothing
        return str(probe.getsockname()[0])
    return ""


@contextmanager
def forwarded(path: str, host: str) -> Iterator[str]:
    """Forward a TCP port of `host` to the socket at `path`; give its `tcp://` address."""

    def serve(ours: socket.socket) -> None:
        theirs = socket.socket(socket.AF_UNIX)
        theirs.connect(path)
        threading.Thread(target=_pump, args=(ours, theirs), daemon=True).start()
        _pump(theirs, ours)

    listener = Listener(serve, host)
    listener.open()
    try:
        yield f"tcp://{listener.host}"
    finally:
        listener.close()


def _pump(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)
    for end in (source, target):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)

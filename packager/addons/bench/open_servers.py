"""Servers that were started here: how many of them the machine holds, and how each is ended."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from types import TracebackType

from packager.cli.serving.opening import MeasuredServer, Opener, OpenServer

SPARE = 1.25  # times the largest server so far, that must be free to start another beside it


class OpenServers:
    """Servers by name, the longest unused first; all are ended with the block.

    `free_bytes` is the memory that is free now and `used_bytes` what a server takes, each None if
    unknown.
    """

    def __init__(
        self,
        opener: Opener,
        *,
        free_bytes: Callable[[], int | None],
        used_bytes: Callable[[OpenServer], int | None],
    ) -> None:
        self._opener = opener
        self._free_bytes = free_bytes
        self._used_bytes = used_bytes
        self._open: dict[str, tuple[OpenServer, ExitStack]] = {}
        self._largest = 0

    def __enter__(self) -> OpenServers:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end_all()

    def __contains__(self, name: str) -> bool:
        return name in self._open

    def __iter__(self) -> Iterator[str]:
        return iter(tuple(self._open))

    def __getitem__(self, name: str) -> OpenServer:
        return self._open[name][0]

    def start(self, name: str, target: MeasuredServer) -> OpenServer:
        """Start a server under a name, and return it when it answers."""
        ending = ExitStack()
        server = ending.enter_context(self._opener.open(target))
        self._open[name] = server, ending
        if server.container is not None:
            self._largest = max(self._largest, self._used_bytes(server) or 0)
        return server

    def resume(self, name: str) -> None:
        """End the pause of a server, which counts as the one used last."""
        self._open[name] = self._open.pop(name)
        self[name].resume()

    def end(self, name: str) -> None:
        """End a server, where it is up: a container that is paused cannot be stopped."""
        if name in self._open:
            server, ending = self._open.pop(name)
            server.resume()
            ending.close()

    def end_all(self) -> None:
        """End every server."""
        for name in self:
            self.end(name)

    def has_room(self) -> bool:
        """Return whether another server may be started beside these.

        False if memory is short or unknown, or if all would serve at one port: the engine has no
        bridge.
        """
        if not self._open:
            return True
        free = self._free_bytes()
        fits = free is not None and free >= SPARE * self._largest
        return fits and not any(self[name].is_on_host_network for name in self)

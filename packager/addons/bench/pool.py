"""Servers of a benchmark: up together and paused in turn, or one after the other.

Two engines that compute at once would measure each other.  Containers that are up together are
paused while another is measured: a start takes longer than a load.  Where the memory does not
hold them all, or devices are shared, each is started again for every round.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import TracebackType

from packager.addons.bench.open_servers import OpenServers
from packager.addons.bench.targets import BenchTarget
from packager.cli.serving.opening import Opener, OpenServer
from packager.core.errors import PackagerError
from packager.core.events import EventSink, ignore, working

START = "start"  # of progress


class ServerPool:
    """Opens servers when they are first used, and ends those that it started."""

    def __init__(
        self,
        opener: Opener,
        *,
        free_bytes: Callable[[], int | None],
        used_bytes: Callable[[OpenServer], int | None],
        on_event: EventSink = ignore,
    ) -> None:
        self._open = OpenServers(opener, free_bytes=free_bytes, used_bytes=used_bytes)
        self._on_event = on_event
        self._takes_turns = False  # several containers are up
        self.start_s: dict[str, float] = {}  # of the first start
        self.models: dict[str, str] = {}  # as servers name them
        self.failures: dict[str, PackagerError] = {}

    def __enter__(self) -> ServerPool:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._open.end_all()

    def can_be_together(self, targets: Sequence[BenchTarget]) -> bool:
        """Return whether all are up together now; else those that were started are ended.

        A server that does not start is kept in `failures`, and no reason against the others.
        """
        images = [target for target in targets if not target.server.is_address]
        if len(images) < 2:
            return True
        if sum(target.server.gpus for target in images) > 1:
            return False
        self._takes_turns = True
        for target in images:
            if target.name in self._open or target.name in self.failures:
                continue  # of a session before
            if not self._open.has_room():
                self._open.end_all()
                self._takes_turns = False
                return False
            with suppress(PackagerError):  # kept in `failures`
                self._start(target)
                self._pause(target.name)
        return True

    @contextmanager
    def use(self, target: BenchTarget, *, alone: bool = False) -> Iterator[OpenServer]:
        """Yield a server that answers, while no other server of ours computes.

        `alone` ends it with the block.  Raises the errors of its start.
        """
        if target.name in self.failures:
            raise self.failures[target.name]
        if target.name not in self._open:
            self._start(target)
        else:
            self._open.resume(target.name)
        try:
            yield self._open[target.name]
        finally:
            if alone:
                self._open.end(target.name)
            else:
                self._pause(target.name)

    def opened(self, target: BenchTarget) -> OpenServer:
        """Return a server that is in use."""
        return self._open[target.name]

    def fail(self, target: BenchTarget, error: PackagerError) -> None:
        """End a server that failed; it is not started again."""
        self.failures[target.name] = error
        self._open.end(target.name)

    def _start(self, target: BenchTarget) -> None:
        try:
            if target.server.is_address:
                server = self._open.start(target.name, target.server)
            else:
                with working(self._on_event, START, target.name):
                    server = self._open.start(target.name, target.server)
        except PackagerError as error:
            self.failures[target.name] = error
            raise
        self.models[target.name] = server.model
        if server.start_s is not None:
            self.start_s.setdefault(target.name, server.start_s)

    def _pause(self, name: str) -> None:
        """Pause a container where there are others; one that ended meanwhile stays as it is."""
        if name in self._open and self._takes_turns:
            self._open[name].pause()

"""Routes requests to containers, and drains containers before they stop."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

Draw = Callable[[], float]  # from 0 to below 1


@dataclass(slots=True, eq=False)
class TrafficServer:
    """A container that answers, and how many requests it has."""

    container: str
    url: str
    variant: str  # name in answers to clients
    is_ready: bool = True
    in_flight: int = 0
    adapters: dict[str, str] = field(default_factory=dict)  # that it has loaded → their folders
    _idle: asyncio.Event = field(default_factory=asyncio.Event)

    @contextmanager
    def leased(self) -> Iterator[TrafficServer]:
        """Count a request from here to the end of the block."""
        self.in_flight += 1
        self._idle.clear()
        try:
            yield self
        finally:
            self.in_flight -= 1
            if self.in_flight == 0:
                self._idle.set()

    async def drained(self, most_s: float) -> bool:
        """Wait until no request is left; return whether that was within the time."""
        if self.in_flight == 0:
            return True
        try:
            await asyncio.wait_for(self._idle.wait(), most_s)
        except TimeoutError:
            return False
        return True


@dataclass(slots=True)
class Pool:
    """Containers that take the same requests."""

    weight: float
    servers: list[TrafficServer]

    def pick(self) -> TrafficServer | None:
        """Return the container with the fewest requests; None where none is ready."""
        ready = [server for server in self.servers if server.is_ready]
        return min(ready, key=lambda server: server.in_flight) if ready else None


def pick_variant(pools: Mapping[str, Pool], draw: Draw = random.random) -> str | None:
    """Return the name of a variant, at random by weight; None where all weights are 0."""
    total = sum(pool.weight for pool in pools.values())
    if total <= 0:
        return None
    mark = draw() * total
    for name, pool in pools.items():
        mark -= pool.weight
        if mark < 0:
            return name
    return next(reversed([name for name, pool in pools.items() if pool.weight > 0]))

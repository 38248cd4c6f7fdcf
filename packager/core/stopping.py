"""Behaviour of a server at SIGTERM while requests are running."""

from __future__ import annotations

from dataclasses import dataclass

DRAIN_S = 25  # that running requests get by default
PLATFORM_GRACE_S = 30  # Kubernetes and SageMaker kill a container so long after SIGTERM


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopping:
    """Seconds between SIGTERM and the end of a server."""

    drain_s: int | None  # that running requests get; 0: they are lost; None: until the last ends
    after_s: int = 5  # to end the engine's processes
    option: str = ""  # of the engine, that sets `drain_s`; "" where none does
    source: str = ""

    @property
    def grace_s(self) -> int:
        """Return how long the platform must wait before it kills the container."""
        drain_s = DRAIN_S if self.drain_s is None else self.drain_s
        return max(PLATFORM_GRACE_S, drain_s + self.after_s)

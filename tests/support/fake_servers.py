"""Servers that start at once, and a list of what was done with them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, cast

from packager.cli.serving.opening import MeasuredServer, OpenServer
from packager.core.errors import SmokeFailed


@dataclass
class FakeContainer:
    """Writes down when it is paused and resumed."""

    image: str
    done: list[str]
    attrs: Mapping[str, Any]

    def pause(self) -> None:
        self.done.append(f"pause {self.image}")

    def unpause(self) -> None:
        self.done.append(f"resume {self.image}")


@dataclass
class FakeOpener:
    """Starts servers; an address has no container, and one that is broken does not start."""

    network: str = "bridge"
    broken: str = ""
    done: list[str] = field(default_factory=list)

    @contextmanager
    def open(self, target: MeasuredServer) -> Iterator[OpenServer]:
        self.done.append(f"start {target.name}")
        if target.name == self.broken:
            raise SmokeFailed(f"{target.name} ended")
        attrs = {"HostConfig": {"NetworkMode": self.network}}
        container = None if target.is_address else FakeContainer(target.name, self.done, attrs)
        try:
            yield OpenServer(
                server=cast("Any", None),
                model="m",
                shown=target.name,
                url="http://here",
                container=container,
                start_s=None if target.is_address else 3.0,
            )
        finally:
            self.done.append(f"end {target.name}")

"""Stands for Ray's module: nodes as told, tasks that say what a test has written for them.

A script gives for a command line what the task yields, in order: bytes of stdout,
the end as (code, tail), or an exception.  The real cluster is in tests/live.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from packager import __version__
from packager.core.order import NodeLine

Script = Callable[[Sequence[str]], Sequence[Any]]


class RayError(Exception):
    """What Ray raises for what it lost."""


class WorkerCrashedError(RayError):
    """A worker died."""


class Handle:
    """A task that was started."""

    def __init__(self, items: Sequence[Any]) -> None:
        self.items: Iterator[Any] = iter(items)

    def __next__(self) -> Any:
        return next(self.items)


class FakeRay:
    """The part of Ray that the executor uses."""

    exceptions = SimpleNamespace(RayError=RayError)

    def __init__(self, nodes: Mapping[str, Mapping[str, float]], script: Script) -> None:
        self.resources = dict(nodes)
        self.script = script
        self.started: list[tuple[dict[str, Any], tuple[Any, ...]]] = []
        self.cancelled: list[Any] = []
        self.version = __version__
        self.gpu_bytes = 0

    def nodes(self) -> list[dict[str, Any]]:
        return [
            {"NodeID": name, "NodeManagerAddress": name, "Resources": has, "Alive": True}
            for name, has in self.resources.items()
        ]

    def remote(self, function: Callable[..., Any]) -> Any:
        def options(**options: Any) -> Any:
            def remote(*arguments: Any) -> Handle:
                if not arguments:  # the probe of versions
                    return Handle([(self.version, self.gpu_bytes)])
                self.started.append((options, arguments))
                return Handle(self.script(arguments[0]))

            return SimpleNamespace(remote=remote)

        return SimpleNamespace(options=options)

    def wait(self, handles: list[Any], **_: Any) -> tuple[list[Any], list[Any]]:
        return handles, []

    def get(self, item: Any) -> Any:
        if isinstance(item, Handle):
            item = next(item)
        if isinstance(item, BaseException):
            raise item
        return item

    def cancel(self, handle: Any, **_: Any) -> None:
        self.cancelled.append(handle)
        handle.items = iter(())

    @property
    def steps(self) -> list[tuple[dict[str, Any], tuple[Any, ...]]]:
        """Tasks that ran steps, with their options and arguments."""
        return [one for one in self.started if one[1][0][1] == "step"]


def line(**fields: Any) -> bytes:
    """Write one line of a node."""
    return NodeLine.model_validate(fields).model_dump_json(exclude_defaults=True).encode() + b"\n"

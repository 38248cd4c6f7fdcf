"""Containers of endpoints without an Engine: each is a model server in a thread of the test."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from packager.addons.server.endpoints.containers import Container
from packager.addons.server.sagemaker.hosting import ServerSpec
from packager.core.errors import NotFound, SmokeFailed
from tests.support.doubles.model_container import ModelServer


@dataclass
class FakeContainers:
    """Stands for `Containers`; keeps what it was asked, and outlives the server that asked."""

    images: set[str] = field(default_factory=lambda: {"tiny:1"})
    there: dict[str, Container] = field(default_factory=dict)
    servers: dict[str, ModelServer] = field(default_factory=dict)
    started: list[str] = field(default_factory=list)
    stopped: list[str] = field(default_factory=list)
    folders: dict[str, Mapping[str, Path]] = field(default_factory=dict)
    gpus: int = 0
    model: str = ""  # address of what all containers are, instead of servers of their own
    gate: threading.Event = field(default_factory=threading.Event)  # starts wait for it
    _numbers: itertools.count[int] = field(default_factory=itertools.count)

    def __post_init__(self) -> None:
        self.gate.set()

    def prepare(self, image: str) -> str:
        if image not in self.images:
            raise NotFound(f"the Docker Engine has no image {image!r}")
        return image

    def start(
        self, spec: ServerSpec, *, owner: str, generation: str, folders: Mapping[str, Path]
    ) -> Container:
        assert self.gate.wait(30)
        number = f"{next(self._numbers):012x}"
        self.folders[owner] = folders
        self.started.append(owner)
        fails = bool(spec.environment.get("FAIL"))
        url = ""
        if not fails and self.model:
            url = self.model
        elif not fails:
            server = ModelServer("127.0.0.1", 0, spec.environment)
            self.servers[number] = server
            threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
            url = f"http://127.0.0.1:{server.server_address[1]}"
        if spec.environment.get("NO_START"):
            raise SmokeFailed("the Docker Engine cannot start it")
        self.there[number] = Container(
            id=number,
            name=f"packager-{owner}",
            owner=owner,
            generation=generation,
            url=url,
            is_running=not fails,
            exit_code=3 if fails else None,
        )
        return self.there[number]

    def restart(self, container: str) -> Container | None:
        self.started.append(f"again {self.there[container].owner}")
        return self.there[container]

    def look(self, container: str) -> Container | None:
        return self.there.get(container)

    def all(self) -> list[Container]:
        return list(self.there.values())

    def stop(self, container: str, grace_s: int = 30) -> None:
        self.stopped.append(self.there[container].owner)
        self.remove(container)

    def remove(self, container: str) -> None:
        self.there.pop(container, None)
        server = self.servers.pop(container, None)
        if server is not None:
            server.shutdown()
            server.server_close()

    def die(self, container: str) -> None:
        """End a container as a crash does."""
        self.there[container] = replace(self.there[container], is_running=False, exit_code=1)

    def rise(self, container: str) -> None:
        """Let a container that ended run again."""
        self.there[container] = replace(self.there[container], is_running=True, exit_code=None)

    def log(self, container: str, *, lines: int = 200) -> str:
        return "2026-11-23T10:00:00.123456789Z ValueError: no such weight\n"

    def failure(self, container: str) -> str:
        return "the container ended with status 3: ValueError: no such weight"

    def close(self) -> None:
        """Remove all."""
        for container in list(self.there):
            self.remove(container)

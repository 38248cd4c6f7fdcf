"""A Docker Engine whose containers are `SpeculatingServer`s."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from docker.errors import ImageNotFound

from tests.support.doubles.speculating import SpeculatingServer


@dataclass
class Container:
    """One started server, until it is removed."""

    server: SpeculatingServer
    name: str
    status: str = "running"
    short_id: str = "c0ffee"
    slow: int = 2  # times that the engine still calls an ended container running
    attrs: dict[str, Any] = field(default_factory=lambda: {"State": {"ExitCode": 137}})

    @property
    def ports(self) -> dict[str, list[dict[str, str]]]:
        return {"8080/tcp": [{"HostPort": str(self.server.port)}]}

    def start(self) -> None: ...

    def reload(self) -> None:
        if self.server.counters.requests > self.server.breaks_after:
            self.slow -= 1
            self.status = "running" if self.slow >= 0 else "exited"

    def logs(self, tail: int) -> bytes:
        return b"the end of the log\n"


class Engine:
    """Images by name, with their configuration; `serve(image, env)` gives what a container is."""

    def __init__(
        self,
        configs: Mapping[str, Mapping[str, Any]],
        serve: Callable[[str, Mapping[str, str | None]], SpeculatingServer],
    ) -> None:
        self.started: list[tuple[str, dict[str, str | None]]] = []
        self.options: list[dict[str, Any]] = []
        self.running: dict[str, Container] = {}
        self.most_at_once = 0
        self._configs, self._serve = configs, serve
        self.images = SimpleNamespace(get=self._image)
        self.containers = SimpleNamespace(create=self._create)
        self.api = SimpleNamespace(
            networks=lambda: [{"Driver": "bridge"}], remove_container=self._remove
        )

    def _image(self, name: str) -> Any:
        if name not in self._configs:
            raise ImageNotFound(name)
        return SimpleNamespace(id="sha256:1d", attrs={"Config": self._configs[name]})

    def _create(
        self, image: str, *, name: str, environment: dict[str, str | None], **options: Any
    ) -> Container:
        server = self._serve(image, environment).__enter__()
        self.started.append((image, environment))
        self.options.append(options)
        self.running[name] = Container(server=server, name=name)
        self.most_at_once = max(self.most_at_once, len(self.running))
        return self.running[name]

    def _remove(self, name: str, **options: Any) -> None:
        self.running.pop(name).server.__exit__(None, None, None)

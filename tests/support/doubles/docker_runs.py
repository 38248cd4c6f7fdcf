"""A Docker Engine as docker-py shows it: containers with labels, names, ports and ends."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from docker.errors import APIError, ImageNotFound, NotFound


def refusal(status: int, explanation: str) -> APIError:
    """Return what docker-py raises for an answer of the engine."""
    response = SimpleNamespace(status_code=status, url="/", reason="")
    kind = NotFound if status == 404 else APIError
    return kind("refused", response=response, explanation=explanation)


@dataclass
class FakeContainer:
    """One container; `asked` is what it was created with."""

    engine: FakeEngine
    id: str
    asked: dict[str, Any]
    status: str = "created"
    exit_code: int = 0
    out_of_memory: bool = False
    log: bytes = b""
    stopped_with: int | None = None

    @property
    def name(self) -> str:
        return str(self.asked["name"])

    @property
    def short_id(self) -> str:
        return self.id[:12]

    def start(self) -> None:
        if self.engine.start_errors:
            raise self.engine.start_errors.pop(0)
        self.status = "running"

    def reload(self) -> None:
        self.engine.find(self.id)

    def stop(self, timeout: int) -> None:
        self.engine.api.stop(self.id, timeout=timeout)

    def logs(self, *, stream: bool = False, **options: Any) -> Any:
        chunks = [self.log[at : at + 7] for at in range(0, len(self.log), 7)]
        return iter(chunks) if stream else self.log

    @property
    def attrs(self) -> dict[str, Any]:
        host = self.asked.get("host_config") or {}
        bound = {
            port: [{"HostIp": place[0], "HostPort": str(place[1])}]
            for port, place in (host.get("port_bindings") or {}).items()
        }
        return {
            "Id": self.id,
            "Name": f"/{self.name}",
            "Config": {
                "Labels": self.asked.get("labels"),
                "Image": self.asked["image"],
                "Cmd": self.asked.get("command"),
                "StopTimeout": self.asked.get("stop_timeout"),
            },
            "HostConfig": {"NetworkMode": host.get("network_mode", "default")},
            "NetworkSettings": {"Ports": bound if self.status == "running" else {}},
            "State": {
                "Status": self.status,
                "ExitCode": self.exit_code,
                "OOMKilled": self.out_of_memory,
                "StartedAt": "2026-11-23T01:00:00.123456789Z",
            },
        }


@dataclass
class FakeEngine:
    """Containers by id, images by name, and errors to answer with."""

    drivers: tuple[str, ...] = ("bridge", "host")
    base_url: str = "http+docker://localhost"
    images_there: dict[str, Any] = field(default_factory=dict)
    there: dict[str, FakeContainer] = field(default_factory=dict)
    create_error: BaseException | None = None
    start_errors: list[APIError] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    lost: Exception | None = None

    def __post_init__(self) -> None:
        self.api = SimpleNamespace(
            base_url=self.base_url,
            networks=lambda: [{"Driver": driver} for driver in self.drivers],
            containers=self._list,
            inspect_container=lambda one: self.find(one).attrs,
            create_host_config=lambda **options: options,
            create_container=self._create,
            remove_container=self._remove,
            stop=self._stop,
        )
        self.containers = SimpleNamespace(get=self.find, create=self._created)
        self.images = SimpleNamespace(get=self._image)

    def add(self, name: str, **asked: Any) -> FakeContainer:
        """Add a container that runs."""
        asked = {"image": "i:1", "labels": {}, **asked}
        made = FakeContainer(self, f"{len(self.there) + len(self.removed):064x}", {**asked})
        made.asked["name"], made.status = name, "running"
        self.there[made.id] = made
        return made

    def find(self, asked: str) -> FakeContainer:
        if self.lost:
            raise self.lost
        for one in self.there.values():
            if asked in (one.name, one.id, one.short_id):
                return one
        raise refusal(404, "no such container")

    def _image(self, name: str) -> Any:
        if name not in self.images_there:
            raise ImageNotFound("no such image")
        return self.images_there[name]

    def _list(self, *, all: bool = False, filters: dict[str, str] | None = None) -> list[Any]:
        if self.lost:
            raise self.lost
        return list(self._listed(all, (filters or {}).get("label", "")))

    def _listed(self, every: bool, label: str) -> Iterator[dict[str, Any]]:
        name, _, value = label.partition("=")
        for one in self.there.values():
            labels = one.asked["labels"]
            fits = not name or (name in labels and value in ("", labels[name]))
            if (every or one.status == "running") and fits:
                ports = [
                    {"PublicPort": int(bound["HostPort"])}
                    for bounds in one.attrs["NetworkSettings"]["Ports"].values()
                    for bound in bounds
                ]
                yield {"Id": one.id, "Names": [f"/{one.name}"], "Ports": ports}

    def _create(self, image: str, **asked: Any) -> dict[str, str]:
        if isinstance(self.create_error, APIError):
            raise self.create_error
        if any(one.name == asked["name"] for one in self.there.values()):
            raise refusal(409, "the name is in use")
        made = self.add(image=image, **asked)
        made.status = "created"
        if self.create_error:  # made, and nobody learns of it
            raise self.create_error
        return {"Id": made.id}

    def _created(self, image: str, **asked: Any) -> FakeContainer:
        return self.find(self._create(image, **asked)["Id"])

    def _remove(self, asked: str, **options: object) -> None:
        found = self.find(asked)
        del self.there[found.id]
        self.removed.append(found.name)

    def _stop(self, asked: str, timeout: int) -> None:
        found = self.find(asked)
        found.stopped_with, found.status = timeout, "exited"

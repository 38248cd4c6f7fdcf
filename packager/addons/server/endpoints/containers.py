"""Containers of endpoints in the Docker Engine: started, found again by label, stopped.

Docker alone keeps the list of running containers; a new server adopts those with its labels.
Methods block on the Engine: call them in a thread.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packager.addons.server.endpoints.devices import (
    DEVICES_LABEL,
    NO_DEVICES,
    Devices,
    choose_devices,
    read_devices,
)
from packager.addons.server.sagemaker.hosting import ServerSpec
from packager.cli.run.containers import engine_errors, find_engine
from packager.cli.run.images import find_pinned
from packager.cli.serving.containers import PORT, placing, start_hint
from packager.cli.serving.engine_log import first_error
from packager.core.errors import NotFound, PackagerError, SmokeFailed
from packager.core.stopping import PLATFORM_GRACE_S
from packager.core.text import escape, remember_variables
from packager.images.docker_engine import engine_reason
from packager.images.target import parse_registry_target

DOCKER_HUB = "docker.io"
OWNER_LABEL = "dev.packager.endpoint"  # `endpoint/NAME/VARIANT`, `component/NAME`
SERVER_LABEL = "dev.packager.endpoint.server"  # the state directory, as a digest
GENERATION_LABEL = "dev.packager.endpoint.generation"  # of one deployment
_TAIL_LINES, _TAIL_BYTES = 200, 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """A container of an endpoint, as the Engine has it now."""

    id: str
    name: str
    owner: str
    generation: str
    url: str  # "" of one that does not run
    is_running: bool
    exit_code: int | None = None  # of one that has ended
    out_of_memory: bool = False
    devices: Devices = NO_DEVICES


class Containers:
    """Containers of one server's endpoints."""

    def __init__(
        self, state: Path, *, records: Path, gpus: int, connect: Callable[[], Any] = find_engine
    ) -> None:
        self._records = records
        self._server = hashlib.sha256(str(state.resolve()).encode()).hexdigest()[:16]
        self.gpus = gpus
        self._connect = connect
        self._engine: Any = None
        self._lock = threading.Lock()
        self._placing = threading.Lock()  # from the look at free GPUs until they are taken

    def prepare(self, image: str) -> str:
        """Return the name by which the Engine has an image, pulled where it lacks it."""
        engine = self._found()
        try:
            with engine_errors():
                return find_pinned(engine, image, self._records)[0]
        except NotFound:
            _pull(engine, image)
        with engine_errors():
            return find_pinned(engine, image, self._records)[0]

    def start(
        self, spec: ServerSpec, *, owner: str, generation: str, folders: Mapping[str, Path]
    ) -> Container:
        """Start a container; `folders` maps paths in it to directories, mounted read-only.

        Raises `SmokeFailed` where the Engine cannot start it, and `PackagerError` where it lacks
        GPUs; then no container remains.
        """
        from docker.errors import APIError
        from docker.types import Mount

        engine = self._found()
        remember_variables(spec.environment)
        name = self.prepare(spec.image)
        with engine_errors():
            options = placing(engine, port=None)
            if "ports" not in options:
                raise SmokeFailed(
                    "the Docker Engine has no bridge network, which endpoints need",
                    hint="start it without --bridge=none",
                )
            if spec.memory_mb is not None:
                options["mem_limit"] = f"{spec.memory_mb}m"
            options["labels"] = {
                OWNER_LABEL: owner,
                SERVER_LABEL: self._server,
                GENERATION_LABEL: generation,
            }
            try:
                with self._with_devices(spec, options):
                    made = engine.containers.create(
                        name,
                        command=["serve"],  # as SageMaker starts images
                        name=_name(owner, generation),
                        environment=dict(spec.environment),
                        mounts=[
                            Mount(target, str(folder), type="bind", read_only=True)
                            for target, folder in folders.items()
                        ],
                        **options,
                    )
            except APIError as error:
                raise _cannot_start(spec.image, error) from error
            try:
                made.start()
            except APIError as error:
                with suppress(APIError):
                    made.remove(force=True, v=True)
                raise _cannot_start(spec.image, error) from error
        found = self.look(str(made.id))
        if found is None:
            raise SmokeFailed(
                "the container was removed by another command", hint="create the endpoint again"
            )
        return found

    def restart(self, container: str) -> Container | None:
        """Start an ended container again; None where it was removed."""
        from docker.errors import NotFound as Gone

        with engine_errors():
            try:
                self._found().containers.get(container).start()
            except Gone:
                return None
        return self.look(container)

    def look(self, container: str) -> Container | None:
        """Return a container's state; None where it was removed."""
        from docker.errors import NotFound as Gone

        with engine_errors():
            try:
                return _container(self._found().api.inspect_container(container))
            except Gone:
                return None

    def all(self) -> list[Container]:
        """Return the containers of this server, those that have ended, too.

        A container has the labels of its image, too: only its name tells that we have made it.
        """
        label = f"{SERVER_LABEL}={self._server}"
        with engine_errors():
            listed = self._found().api.containers(all=True, filters={"label": label})
        looked = (self.look(one["Id"]) for one in listed)
        return [
            one
            for one in looked
            if one is not None and one.name == _name(one.owner, one.generation)
        ]

    def stop(self, container: str, grace_s: int = PLATFORM_GRACE_S) -> None:
        """Stop a container as SageMaker does, and remove it, if it still exists."""
        from docker.errors import DockerException

        with suppress(DockerException, OSError):
            self._found().api.stop(container, timeout=grace_s)
        self.remove(container)

    def remove(self, container: str) -> None:
        """Kill and remove a container, if it still exists."""
        from docker.errors import NotFound as Gone

        with engine_errors(), suppress(Gone):
            self._found().api.remove_container(container, force=True, v=True)

    def log(self, container: str, *, lines: int = _TAIL_LINES) -> str:
        """Return the end of a container's log, each line behind its time; "" without one."""
        with suppress(Exception):
            data: bytes = self._found().api.logs(container, tail=lines, timestamps=True)
            return data[-_TAIL_BYTES * 16 :].decode(errors="replace")
        return ""

    def failure(self, container: str) -> str:
        """Return why a container failed, by its state and the first error of its log."""
        found = self.look(container)
        if found is None:
            return "the container was removed by another command"
        with suppress(Exception):
            data: bytes = self._found().api.logs(container, tail=_TAIL_LINES)
            log = data[-_TAIL_BYTES:].decode(errors="replace")
            error = first_error(log)
            lines = [line for line in log.splitlines() if line.strip()]
            said = error.summary if error else "; ".join(lines[-3:])
            return _ended(found) + (f": {_plain(said, 700)}" if said else "")
        return _ended(found)

    @contextmanager
    def _with_devices(self, spec: ServerSpec, options: dict[str, Any]) -> Iterator[None]:
        """Add free GPUs to the options of a container that the block creates."""
        if not self.gpus or spec.accelerators == 0:
            yield
            return
        from docker.types import DeviceRequest

        with self._placing:
            chosen = choose_devices(spec.accelerators, self.gpus, self._taken())
            numbers = list(map(str, chosen.numbers))
            options["device_requests"] = [DeviceRequest(device_ids=numbers, capabilities=[["gpu"]])]
            options["labels"][DEVICES_LABEL] = chosen.label()
            yield

    def _taken(self) -> Iterator[Devices]:
        """Yield the GPUs of containers of all servers of this machine, also of those that ended."""
        api = self._found().api
        for one in api.containers(all=True, filters={"label": DEVICES_LABEL}):
            found = self.look(one["Id"])
            if found is not None and found.name == _name(found.owner, found.generation):
                yield found.devices

    def _found(self) -> Any:
        """Return the Engine; connect to it where no connection was made yet."""
        with self._lock:
            if self._engine is None:
                self._engine = self._connect()
            return self._engine


def _pull(engine: Any, image: str) -> None:
    """Pull an image; raises `NotFound` where its registry does not give it."""
    from docker.errors import APIError, DockerException

    reference = parse_registry_target(image).image
    if reference.host == DOCKER_HUB and not image.startswith(f"{DOCKER_HUB}/"):
        raise NotFound(
            f"the Docker Engine has no image {image!r}, and its name says no registry",
            hint="build it with --output docker:NAME, or push it and give HOST/NAME",
        )
    try:
        engine.api.pull(reference.name, tag=reference.pointer)
    except (APIError, DockerException, OSError) as error:
        reason = str(getattr(error, "explanation", "") or error)
        raise NotFound(
            f"the image {image!r} cannot be pulled: {_plain(reason, 300)}",
            hint="pull it into the Engine first, with `docker pull` and its login",
        ) from error


def _container(found: Mapping[str, Any]) -> Container:
    labels = found["Config"].get("Labels") or {}
    state = found["State"]
    bound = (found["NetworkSettings"].get("Ports") or {}).get(f"{PORT}/tcp")
    return Container(
        id=found["Id"],
        name=found["Name"].removeprefix("/"),
        owner=labels.get(OWNER_LABEL, ""),
        generation=labels.get(GENERATION_LABEL, ""),
        url=f"http://127.0.0.1:{bound[0]['HostPort']}" if bound else "",
        is_running=state["Status"] == "running",
        exit_code=state["ExitCode"] if state["Status"] in ("exited", "dead") else None,
        out_of_memory=bool(state.get("OOMKilled")),
        devices=read_devices(labels.get(DEVICES_LABEL, "")),
    )


def _plain(text: str, limit: int) -> str:
    """Return untrusted text in one line that is safe to print."""
    plain = escape(" ".join(text.split()))
    return plain if len(plain) <= limit else f"{plain[: limit - 3]}..."


def _name(owner: str, generation: str) -> str:
    return f"packager-{owner.replace('/', '-')}-{generation}"


def _ended(found: Container) -> str:
    if found.is_running:
        return "the container runs, and /ping does not answer with 200"
    if found.out_of_memory:
        return "the container ran out of memory and was killed"
    return f"the container ended with status {found.exit_code}"


def _cannot_start(image: str, error: Any) -> PackagerError:
    reason = engine_reason(error)
    return SmokeFailed(
        f"the Docker Engine cannot start {image!r}: {_plain(reason, 500)}",
        hint=start_hint(reason),
    )

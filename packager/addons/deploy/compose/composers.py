"""Two ways to run the services of a compose file: `docker compose` itself, and the Docker API.

Both read the file from the disk and set the labels of Compose, so each finds containers that the
other has started.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from packager.addons.deploy.compose.documents import FILE, parse_document
from packager.cli.run.containers import engine_errors
from packager.core.documents import shorten
from packager.core.errors import Unavailable, UsageError
from packager.core.stopping import PLATFORM_GRACE_S
from packager.core.text import escape, remember_variables

PROJECT, SERVICE = "com.docker.compose.project", "com.docker.compose.service"
_TIMEOUT_S = 86_400  # of one command: it pulls images, and 150 GB take longer than an hour


class Composer(Protocol):
    """Starts and ends services of a project. Each call may be repeated."""

    name: str

    def up(self, folder: Path, project: str, services: Sequence[str]) -> None:
        """Create and start services that do not run; others are left as they are."""
        ...

    def remove(self, folder: Path, project: str, services: Sequence[str]) -> None:
        """Stop services, with the grace that the file gives them, and remove them."""
        ...

    def down(self, folder: Path, project: str) -> None:
        """Stop and remove everything of the project."""
        ...


def compose_refused(words: Sequence[str], said: str) -> UsageError:
    """Return an error: `docker compose` failed."""
    lines = [line for line in said.splitlines() if line.strip()]
    last = shorten(escape(" / ".join(lines[-3:])), 400)
    return UsageError(
        f"`{' '.join(words)}` failed: {last or 'it does not say why'}",
        hint="run it in the project's directory, which `packager deploy compose status` names",
        code="ComposeRefused",
    )


def find_compose() -> tuple[str, ...] | None:
    """Return the command of Docker Compose; None where it is not installed."""
    with suppress(OSError, subprocess.TimeoutExpired):
        asked = ["docker", "compose", "version"]
        if subprocess.run(asked, capture_output=True, timeout=30, check=False).returncode == 0:
            return ("docker", "compose")
    return ("docker-compose",) if shutil.which("docker-compose") else None


class CommandComposer:
    """Runs `docker compose`."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = tuple(command)
        self.name = " ".join(command)

    def up(self, folder: Path, project: str, services: Sequence[str]) -> None:
        """Run `up` for these services alone."""
        self._run(folder, project, "up", "--detach", "--no-deps", "--no-recreate", *services)

    def remove(self, folder: Path, project: str, services: Sequence[str]) -> None:
        """Run `rm --stop`."""
        if services:
            self._run(folder, project, "rm", "--stop", "--force", "-v", *services)

    def down(self, folder: Path, project: str) -> None:
        """Run `down`, which takes services that the file no longer names, too."""
        self._run(folder, project, "down", "--remove-orphans", "--volumes")

    def _run(self, folder: Path, project: str, *words: str) -> None:
        command = [*self._command, "-p", project, "-f", FILE, *words]
        try:
            done = subprocess.run(
                command,
                cwd=folder,
                capture_output=True,
                text=True,
                timeout=_TIMEOUT_S,
                errors="replace",
                stdin=subprocess.DEVNULL,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise Unavailable(
                f"`{' '.join(self._command)} {words[0]}` did not end: {type(error).__name__}",
                hint="check that it is installed and answers; applying again goes on",
            ) from error
        if done.returncode != 0:
            raise compose_refused((*self._command, *words), done.stderr or done.stdout)


class ApiComposer:
    """Does through the Docker API what the file says."""

    name = "the Docker API"

    def __init__(self, engine: Any, environment: Mapping[str, str] | None = None) -> None:
        self._engine = engine
        self._environment = os.environ if environment is None else environment

    def up(self, folder: Path, project: str, services: Sequence[str]) -> None:
        """Create the network and the containers that are not there, and start them."""
        document = parse_document((folder / FILE).read_text(encoding="utf-8"))
        with engine_errors():
            network = self._network(project)
            there = {one.labels.get(SERVICE): one for one in self._containers(project)}
            for name in services:
                container = there.get(name)
                if container is None:
                    options = container_options(document, name, project, folder, self._environment)
                    container = self._create(options, network, name)
                container.start()

    def remove(self, folder: Path, project: str, services: Sequence[str]) -> None:  # noqa: ARG002
        """Stop the containers at once, each with its own grace, then remove them."""
        self._end(project, lambda service: service in services)

    def down(self, folder: Path, project: str) -> None:  # noqa: ARG002
        """End every container of the project, then its network."""
        self._end(project, lambda _: True)
        from docker.errors import APIError

        with engine_errors():
            for network in self._engine.networks.list(filters={"label": f"{PROJECT}={project}"}):
                with suppress(APIError):  # a container of another project is in it
                    network.remove()

    def _end(self, project: str, is_wanted: Callable[[str], bool]) -> None:
        from concurrent.futures import ThreadPoolExecutor

        from docker.errors import APIError

        with engine_errors():
            found = [
                one for one in self._containers(project) if is_wanted(one.labels.get(SERVICE, ""))
            ]

            def end(container: Any) -> None:
                grace_s = container.attrs["Config"].get("StopTimeout") or PLATFORM_GRACE_S
                with suppress(APIError):
                    container.stop(timeout=grace_s)
                with suppress(APIError):
                    container.remove(force=True, v=True)

            with ThreadPoolExecutor(max(len(found), 1)) as threads:
                list(threads.map(end, found))

    def _containers(self, project: str) -> Collection[Any]:
        found: list[Any] = self._engine.containers.list(
            all=True, filters={"label": f"{PROJECT}={project}"}
        )
        return found

    def _network(self, project: str) -> str:
        name = f"{project}_default"
        if not self._engine.networks.list(filters={"label": f"{PROJECT}={project}"}):
            labels = {PROJECT: project, "com.docker.compose.network": "default"}
            self._engine.networks.create(name, driver="bridge", labels=labels, check_duplicate=True)
        return name

    def _create(self, options: Mapping[str, Any], network: str, service: str) -> Any:
        api = self._engine.api
        remember_variables(options["container"]["environment"])
        host = api.create_host_config(network_mode=network, **options["host"])
        endpoint = api.create_endpoint_config(aliases=[service])
        made = api.create_container(
            **options["container"],
            host_config=host,
            networking_config=api.create_networking_config({network: endpoint}),
        )
        return self._engine.containers.get(made["Id"])


def container_options(
    document: Mapping[str, Any],
    service: str,
    project: str,
    folder: Path,
    environment: Mapping[str, str],
) -> dict[str, Any]:
    """Return docker-py's arguments for a service of a file that we have rendered.

    `container` are those of `create_container`, `host` of `create_host_config`.  Raises
    `UsageError` for a service that a patch has changed beyond what is done here.
    """
    _refuse_unknown(service, document["services"][service])
    try:
        return _options(document, service, project, folder, environment)
    except (KeyError, AttributeError, TypeError, ValueError) as error:
        raise UsageError(
            f"service {service!r} has a field that is written otherwise than it is rendered "
            f"({type(error).__name__}): that is not done through the Docker API",
            hint="write it as the rendered file does, or give --through compose",
        ) from error


def _options(
    document: Mapping[str, Any],
    service: str,
    project: str,
    folder: Path,
    environment: Mapping[str, str],
) -> dict[str, Any]:
    found = document["services"][service]
    secrets = document.get("secrets") or {}
    mounts = [
        *(
            (str((folder / one["source"]).resolve()), one["target"], one.get("read_only", False))
            for one in found.get("volumes", ())
        ),
        *((secrets[one]["file"], f"/run/secrets/{one}", True) for one in found.get("secrets", ())),
    ]
    labels = {
        **found["labels"],
        PROJECT: project,
        SERVICE: service,
        "com.docker.compose.container-number": "1",
        "com.docker.compose.oneoff": "False",
        "com.docker.compose.project.working_dir": str(folder),
        "com.docker.compose.project.config_files": str(folder / FILE),
    }
    container: dict[str, Any] = {
        "image": found["image"],
        "name": f"{project}-{service}-1",
        "hostname": None,
        "command": found.get("command"),
        "entrypoint": found.get("entrypoint"),
        "environment": _environment(found, environment),
        "user": found.get("user"),
        "labels": labels,
        "stop_timeout": int(found["stop_grace_period"].removesuffix("s")),
        "healthcheck": _healthcheck(found["healthcheck"]),
        "ports": [int(one.rpartition(":")[2]) for one in found.get("ports", ())],
    }
    host: dict[str, Any] = {
        "binds": [
            f"{source}:{target}:{'ro' if is_read_only else 'rw'}"
            for source, target, is_read_only in mounts
        ],
        "port_bindings": dict(_published(one) for one in found.get("ports", ())),
        "shm_size": found.get("shm_size"),
        "read_only": found.get("read_only", False),
        "tmpfs": dict(_split_tmpfs(one) for one in found.get("tmpfs", ())),
        "cap_drop": found.get("cap_drop"),
        "security_opt": found.get("security_opt"),
        "mem_limit": found.get("mem_limit"),
        "devices": found.get("devices"),
        "restart_policy": {"Name": found["restart"]},
        "device_requests": _device_requests(found),
    }
    return {"container": container, "host": {key: one for key, one in host.items() if one}}


# Fields of a service that are handed to the Docker API here.
_DONE = frozenset(
    {
        *("image", "command", "entrypoint", "environment", "env_file", "user", "labels"),
        *("stop_grace_period", "healthcheck", "ports", "volumes", "secrets", "shm_size"),
        *("read_only", "tmpfs", "cap_drop", "security_opt", "mem_limit", "devices", "restart"),
        *("deploy",),
    }
)


def _refuse_unknown(service: str, found: Mapping[str, Any]) -> None:
    """Raise `UsageError` for a field that would be left out: a patch has put it there."""
    unknown = sorted(found.keys() - _DONE)
    if unknown:
        raise UsageError(
            f"service {service!r} has {unknown[0]}, which is not done through the Docker API",
            hint="install Docker Compose, and give --through compose",
        )


def _reserved(found: Mapping[str, Any]) -> list[Any]:
    reserved = found.get("deploy", {}).get("resources", {}).get("reservations", {})
    return list(reserved.get("devices", ()))


def _environment(found: Mapping[str, Any], environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables as compose makes them: files first, then what is passed or said."""
    from docker.utils import parse_env_file

    made: dict[str, str] = {}
    for path in found.get("env_file", ()):
        made |= parse_env_file(path)
    for name, value in found.get("environment", {}).items():
        if value is not None:
            made[name] = value
        elif name in environment:
            made[name] = environment[name]
    return made


def _published(text: str) -> tuple[int, tuple[str, int]]:
    host, published, inside = text.rsplit(":", 2)
    return int(inside), (host.strip("[]"), int(published))


def _split_tmpfs(text: str) -> tuple[str, str]:
    path, _, options = text.partition(":")
    return path, options


def _healthcheck(found: Mapping[str, Any]) -> dict[str, Any]:
    def nanoseconds(name: str) -> int:
        return int(found[name].removesuffix("s")) * 10**9

    return {
        "test": found["test"],
        "interval": nanoseconds("interval"),
        "timeout": nanoseconds("timeout"),
        "start_period": nanoseconds("start_period"),
        "retries": found["retries"],
    }


def _device_requests(found: Mapping[str, Any]) -> list[Any]:
    from docker.types import DeviceRequest

    return [
        DeviceRequest(
            driver=one["driver"],
            device_ids=one["device_ids"],
            capabilities=[one["capabilities"]],
        )
        for one in _reserved(found)
    ]

"""Containers of runs in the Docker Engine: created, found by label, stopped.

Docker alone keeps the list of runs, so a run whose command was killed is still listed, and still
ended by `packager stop`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from packager.cli.run.names import MODEL_LABEL, RUN_LABEL, container_name
from packager.cli.run.ports import HOST, free_ports, is_free, port_taken, process_at
from packager.cli.serving.containers import PORT, placing, start_hint
from packager.core.errors import NotFound, SmokeFailed, Unavailable, UsageError
from packager.core.stopping import PLATFORM_GRACE_S
from packager.core.suggestions import guess
from packager.images.docker_engine import connect_engine, engine_reason, is_here

_TAKEN = ("port is already allocated", "address already in use", "ports are not available")


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerSpec:
    """A container that is to run."""

    name: str  # the run's
    image: str
    model: str  # the name that clients send, as it was planned
    takes_port: bool = False  # its server takes `--host` and `--port`
    port: int | None = None  # None: a free one
    env: Mapping[str, str]
    gpus: bool = False
    grace_s: int = PLATFORM_GRACE_S
    binds: tuple[str, ...] = ()  # SOURCE:TARGET:ro or rw
    arguments: tuple[str, ...] = ()  # of the server, beside its own


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A container of a run, as Docker has it now."""

    name: str
    model: str
    status: str  # Docker's own: created, running, paused, restarting, exited, dead
    exit_code: int | None  # of one that has ended
    url: str  # "" of one that has ended
    image: str
    container: str  # its id, short
    started: str  # RFC 3339; "" of one that never started
    grace_s: int
    out_of_memory: bool = False  # reason of a kill by the kernel


def name_taken(found: Run) -> UsageError:
    """Return an error: a run of that name is there already."""
    at = f" at {found.url}" if found.url else ""
    return UsageError(
        f"a run named {found.name!r} is there already{at}",
        hint=f"`packager stop {found.name}` ends it; --name NAME starts another beside it",
        code="NameTaken",
    )


def no_such_run(name: str, known: list[str]) -> NotFound:
    """Return an error: no container has the label of that run."""
    none = "nothing runs: `packager run MODEL` starts a model"
    others = "`packager ps` lists those that there are" if known else none
    return NotFound(
        f"there is no run named {name!r}", hint=guess(name, known, others), code="NoSuchRun"
    )


def find_engine() -> Any:
    """Return a client of this machine's Docker Engine; refuse one on another machine.

    What an engine publishes on loopback is reached on its own machine alone.
    """
    engine = connect_engine(without="or see what `packager doctor` says of it")
    if not is_here(engine):
        raise UsageError(
            "the Docker Engine is on another machine, and runs are reached by loopback alone",
            hint="run packager there, or unset DOCKER_HOST to use this machine's engine",
        )
    return engine


def list_runs(engine: Any) -> list[Run]:
    """Return every run, the newest first; those that have ended and were not removed, too."""
    with engine_errors():
        found = engine.api.containers(all=True, filters={"label": RUN_LABEL})
        return [run for one in found if (run := _inspected(engine, one["Id"])) is not None]


def find_run(engine: Any, name: str) -> Run:
    """Return the run of that name; raise `no_such_run` without one."""
    runs = list_runs(engine)
    for run in runs:
        if run.name == name:
            return run
    raise no_such_run(name, [run.name for run in runs])


def check_free(engine: Any, name: str, port: int | None) -> None:
    """Refuse a name that runs and a port that is taken, before any work is done."""
    runs = list_runs(engine)
    for run in runs:
        if run.name == name and run.exit_code is None:
            raise name_taken(run)
    if port is not None and not is_free(port):
        raise port_taken(port, _who_has(engine, port))


@contextmanager
def started(engine: Any, wanted: ContainerSpec, say: Callable[[str], None]) -> Iterator[Started]:
    """Start a container; kill and remove it at the end, unless it was left or ended before."""
    made = Started(engine, wanted)
    try:
        with engine_errors():
            made.start(say)
        yield made
    finally:
        if not made.is_left:
            made.remove()


class Started:
    """The container of a run that this process has started."""

    def __init__(self, engine: Any, wanted: ContainerSpec) -> None:
        self._engine = engine
        self._wanted = wanted
        self._name = container_name(wanted.name)
        self._is_ours = False
        self.container: Any = None
        self.url = ""
        self.is_left = False

    def start(self, say: Callable[[str], None]) -> None:
        """Create and start the container, at another port where one was taken meanwhile."""
        self._remove_ended()
        asked = self._wanted.port
        for port in (asked,) if asked is not None else free_ports():
            self._create(port)
            say(f"starting {self.container.short_id} from {self._wanted.image}")
            if self._has_started():
                self.url = f"http://{HOST}:{port}"
                return
            self.remove()
        assert asked is not None
        raise port_taken(asked, _who_has(self._engine, asked))

    def look(self) -> Run | None:
        """Return the container's state; None where it was removed."""
        with engine_errors():
            return _inspected(self._engine, self.container.id)

    def remove(self) -> None:
        """Kill and remove the container, if it still exists."""
        from docker.errors import DockerException

        if self._is_ours:
            with suppress(DockerException, OSError):
                self._engine.api.remove_container(self._name, force=True, v=True)

    def stop(self) -> None:
        """Stop it when its running requests have ended, and remove it; an interrupt passes."""
        from docker.errors import DockerException

        with suppress(DockerException, OSError):
            self.container.stop(timeout=self._wanted.grace_s)
        self.remove()

    def _remove_ended(self) -> None:
        """Remove an ended run of the same name, whose log was kept until now."""
        for run in list_runs(self._engine):
            if run.name == self._wanted.name and run.exit_code is not None:
                _remove(self._engine, run)

    def _create(self, port: int) -> None:
        from docker.errors import APIError

        wanted, api = self._wanted, self._engine.api
        options = placing(self._engine, port=port, host=HOST, gpus=wanted.gpus)
        bindings = options.pop("ports", None)
        if bindings is None and port != PORT and not wanted.takes_port:
            raise UsageError(
                f"this Docker Engine has no bridge, and only port {PORT} can be served",
                hint=f"end what listens there, then use --port {PORT}",
            )
        moved = bindings is None and wanted.takes_port
        at = ("--host", HOST, "--port", str(port)) if moved else ()
        options |= {"binds": list(wanted.binds)} if wanted.binds else {}
        try:
            self._is_ours = True  # an interrupt may hide that it was made
            made = api.create_container(
                wanted.image,
                command=[*at, *wanted.arguments] or None,
                name=self._name,
                labels={RUN_LABEL: wanted.name, MODEL_LABEL: wanted.model},
                environment=dict(wanted.env),
                ports=[PORT],
                stop_timeout=wanted.grace_s,  # for `docker stop`, too
                host_config=api.create_host_config(port_bindings=bindings, **options),
            )
            self.container = self._engine.containers.get(made["Id"])
        except APIError as error:
            self._is_ours = False
            if error.status_code == 409:
                raise self._name_taken() from error
            raise _cannot_start(wanted.image, error) from error

    def _has_started(self) -> bool:
        """Start it; return False where another has the port."""
        from docker.errors import APIError

        try:
            self.container.start()
        except APIError as error:
            if any(words in str(error.explanation or error) for words in _TAKEN):
                return False
            raise _cannot_start(self._wanted.image, error) from error
        return True

    def _name_taken(self) -> UsageError:
        for run in list_runs(self._engine):
            if run.name == self._wanted.name:
                return name_taken(run)
        return UsageError(
            f"a container named {self._name!r} is there that packager did not start",
            hint="choose another name with --name",
        )


def stop_run(engine: Any, run: Run, timeout_s: int | None = None) -> None:
    """End a run: its requests get `timeout_s`, or the time of its plan; then remove it."""
    from docker.errors import NotFound as Gone

    with engine_errors(), suppress(Gone):
        if run.exit_code is None:
            engine.api.stop(run.container, timeout=run.grace_s if timeout_s is None else timeout_s)
        _remove(engine, run)


def log_lines(engine: Any, run: Run, *, follow: bool, tail: int | None) -> Iterator[str]:
    """Yield the log's lines as they come, each behind its time and a space."""
    container = engine.containers.get(run.container)
    chunks = container.logs(
        stream=True, follow=follow, timestamps=True, tail="all" if tail is None else tail
    )
    rest = b""
    with engine_errors():
        for chunk in chunks:
            *lines, rest = (rest + chunk).split(b"\n")
            yield from (line.decode(errors="replace") for line in lines)
    if rest:
        yield rest.decode(errors="replace")


@contextmanager
def engine_errors() -> Iterator[None]:
    """Turn docker-py's errors into ours."""
    from docker.errors import APIError, DockerException
    from urllib3.exceptions import HTTPError

    try:
        yield
    except APIError as error:
        raise SmokeFailed(f"the Docker Engine refuses: {engine_reason(error)}") from error
    except (DockerException, HTTPError, OSError) as error:
        raise Unavailable(
            "the connection to the Docker Engine was lost",
            hint="see whether it still runs: `docker info`",
        ) from error


def _inspected(engine: Any, container: str) -> Run | None:
    """Return what Docker knows of a run; None where it is gone or was not created by packager.

    A container has the labels of its image, too: only its name tells that we have made it.
    """
    from docker.errors import NotFound as Gone

    try:
        found = engine.api.inspect_container(container)
    except Gone:
        return None
    config = found["Config"]
    labels = config.get("Labels") or {}
    if found["Name"].lstrip("/") != container_name(labels[RUN_LABEL]):
        return None
    state = found["State"]
    ended = state["Status"] in ("exited", "dead")
    began = str(state.get("StartedAt") or "")
    return Run(
        name=labels[RUN_LABEL],
        model=labels.get(MODEL_LABEL, ""),
        status=state["Status"],
        exit_code=state["ExitCode"] if ended else None,
        url="" if ended else _url_of(found),
        image=config["Image"],
        container=found["Id"][:12],
        started="" if began.startswith("0001-") else began,
        grace_s=config.get("StopTimeout") or PLATFORM_GRACE_S,
        out_of_memory=bool(state.get("OOMKilled")),
    )


def _url_of(found: Mapping[str, Any]) -> str:
    bound = (found["NetworkSettings"].get("Ports") or {}).get(f"{PORT}/tcp")
    if bound:
        return f"http://{HOST}:{bound[0]['HostPort']}"
    if found["HostConfig"].get("NetworkMode") != "host":
        return ""
    words = found["Config"].get("Cmd") or []
    port = words[words.index("--port") + 1] if "--port" in words[:-1] else PORT
    return f"http://{HOST}:{port}"


def _who_has(engine: Any, port: int) -> str:
    """Return the owner of a port: a run, another container, or a visible process."""
    with engine_errors():
        for run in list_runs(engine):
            if run.url.endswith(f":{port}"):
                return f"the run {run.name!r}"
        for one in engine.api.containers():
            if any(bound.get("PublicPort") == port for bound in one.get("Ports") or ()):
                return f"the container {one['Names'][0].lstrip('/')!r}"
    return process_at(port)


def _remove(engine: Any, run: Run) -> None:
    from docker.errors import APIError

    try:
        engine.api.remove_container(run.container, force=True, v=True)
    except APIError as error:
        if error.status_code not in (404, 409):  # gone, or ending
            raise


def _cannot_start(image: str, error: Any) -> SmokeFailed:
    reason = engine_reason(error)
    return SmokeFailed(
        f"the Docker Engine cannot start {image!r}: {reason}", hint=start_hint(reason)
    )

"""Runs a step in a container of the Docker Engine: the same worker, the same protocol.

The image of a tool is its base with the requirements installed by the same
`install.py` that makes local environments; the worker itself is mounted, so
that changing it installs nothing.  Inputs are mounted read-only, there is no
network, and the container is removed in whatever way the step ends.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from packager.adapters.engine import connect_engine
from packager.adapters.executors.capacity import (
    check_capacity,
    machine_capacity,
    visible_gpus,
)
from packager.adapters.executors.failures import read_tail
from packager.adapters.executors.kept import kept_bytes, step_places
from packager.adapters.executors.logs import new_log
from packager.adapters.executors.processes import SUPERVISOR
from packager.adapters.executors.protocol import (
    BASE_ENV,
    Listener,
    ReadBlob,
    fetched_bytes,
    judge,
    lay_out,
    listen,
    make_spec,
    thread_settings,
)
from packager.adapters.tools.definition import ToolDefinition
from packager.adapters.tools.environments import (
    INDEX_SETTINGS,
    Environments,
    install_options,
    refuse_missing_build,
    refuse_other_files,
)
from packager.core.documents import NotStrict, parse_object
from packager.core.events import EventSink, StepEvent
from packager.core.image import BaseImage
from packager.core.recipe import Step, StepResult
from packager.core.tool import Build, ToolFacts, build_for
from packager.errors import NotFound, ToolUnavailable, Unavailable

ROOT = "/run/packager"
LABEL = "dev.packager.tool"
PYTHON_IMAGE = re.compile(r"(?:^|/)python:(?P<minor>\d+\.\d+)")
INSTALL_TIMEOUT_S = 3600.0


def cannot_load(base: BaseImage) -> str:
    """Stand where nobody said how an engine gets a base image."""
    raise ToolUnavailable(f"nobody here can load {base.reference!r} into the Docker Engine")


class DockerExecutor:
    """One step at a time, in a container without network."""

    name = "docker"

    def __init__(
        self,
        environments: Environments,
        *,
        work_dir: Path,
        log_dir: Path,
        read: ReadBlob,
        on_event: EventSink,
        check: bool = True,
        restart: bool = False,
        base: str = "",
        load_image: Callable[[BaseImage], str] = cannot_load,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._environments = environments
        self._work_dir = work_dir
        self._log_dir = log_dir
        self._read = read
        self._on_event = on_event
        self._check = check
        self._restart = restart
        self._load_image = load_image
        self._environment = os.environ if environment is None else environment
        self._base = base or self._environment.get("PACKAGER_TOOL_BASE", "")
        self._client: Any = None

    def find_tool(self, name: str, build: Build = "cpu") -> ToolFacts:
        """Describe the tool as its image has it, or as it declares itself."""
        tool = self._environments.tool(name, build)
        if tool.file.in_serving_image:
            return tool.facts(None)
        base = self._find_base(tool.provider, pull=False)
        if base is None:
            return tool.facts(None, python=_python_of(self._base or tool.provider.file.image))
        image = self._find_image(_tag(tool.provider, base))
        return tool.facts(
            _versions_of(image) if image is not None else None,
            python=_python_of(self._base or tool.provider.file.image),
            image=_name_of(base).rpartition("sha256:")[2],
        )

    def prepare(self, name: str, build: Build = "cpu") -> None:
        """Build the tool's image where there is none; a step's own image is loaded when it runs."""
        tool = self._environments.tool(name, build)
        if not tool.file.in_serving_image:
            self._image(tool)

    def admit(self, step: Step) -> None:
        """Compare what the step needs with what is here, and what it has kept already."""
        if self._check:
            kept = kept_bytes(self._work_dir, step)
            check_capacity(step, self.capacity(), fetched=fetched_bytes(step), kept=kept)

    def run(self, step: Step, into: Path) -> StepResult:
        """Run the worker in a container of its own, which is gone afterwards."""
        self.admit(step)
        tool = self._environments.tool(step.tool, build_for(step.gpus))
        image = self._image(tool) if step.image is None else self._load_image(step.image)
        with step_places(self._work_dir, step, restart=self._restart) as (place, kept):
            log = new_log(self._log_dir, step.name)
            mounts: dict[str, str] = {}

            def offer(source: Path, target: Path) -> None:
                target.touch()  # a place to mount upon: the inputs are read-only
                role, _, path = target.relative_to(place / "inputs").as_posix().partition("/")
                mounts[str(source)] = f"{_place_of(step, role)}/{path}"

            lay_out(step, place, self._read, self._on_event, offer, work=kept)
            spec = make_spec(step, root=ROOT, output=f"{ROOT}/output")
            (place / "spec.json").write_text(spec.model_dump_json(), encoding="utf-8")
            with log.open("ab") as sink:
                listener = Listener(step, sink, self._on_event)
                options = self._options(step, tool, place, into, mounts)
                code, oom = self._execute(step, image, options, listener, sink, log)
            answer = place / "answer/result.json"
            # Signals are 128 and their number in a container, and negative here.
            code = 128 - code if code > 128 else code
            return judge(step, code, answer, into, listener, log, oom=oom)

    def capacity(self) -> Mapping[str, float]:
        """What this machine has: the engine is taken to be on it, since it mounts our files."""
        return machine_capacity(self._work_dir, self._environment)

    def _options(
        self, step: Step, tool: ToolDefinition, place: Path, into: Path, mounts: Mapping[str, str]
    ) -> dict[str, Any]:
        from docker.types import Mount

        def bind(source: str, target: str, *, read_only: bool = True) -> Any:
            return Mount(target, source, type="bind", read_only=read_only)

        needed = step.needs.memory_bytes
        placed = [role for role in step.inputs if role in step.places]
        return {
            "command": [
                *("python3", "-I", f"{ROOT}/supervise.py", "-1"),
                *("python3", f"{ROOT}/tool/worker.py", f"{ROOT}/spec.json"),
            ],
            "stdin_open": True,  # closed when we let go, or die: see supervise.py
            "entrypoint": [],
            "environment": {
                **BASE_ENV,
                "HOME": f"{ROOT}/home",
                "TMPDIR": f"{ROOT}/tmp",
                "PYTHONPATH": f"{ROOT}/helper",
                **thread_settings(step),
                **step.env,
            },
            "working_dir": f"{ROOT}/work",
            "mounts": [
                *(
                    bind(
                        str((place / name).resolve()), f"{ROOT}/{name}", read_only=name == "inputs"
                    )
                    for name in ("inputs", "work", "home", "tmp", "answer")
                ),
                bind(str(place / "spec.json"), f"{ROOT}/spec.json"),
                bind(str(SUPERVISOR), f"{ROOT}/supervise.py"),
                *(bind(str(place / "inputs" / role), _place_of(step, role)) for role in placed),
                bind(
                    str(into.absolute()),
                    step.places.get("output", f"{ROOT}/output"),
                    read_only=False,
                ),
                bind(str(tool.directory.absolute()), f"{ROOT}/tool"),
                bind(str(self._environments.helper.absolute()), f"{ROOT}/helper"),
                *(bind(source, target) for source, target in mounts.items()),
            ],
            "user": f"{os.geteuid()}:{os.getegid()}",  # the files are ours afterwards
            "network_mode": "none",
            "cap_drop": ["ALL"],
            "security_opt": ["no-new-privileges"],
            "shm_size": "1g",
            # Twice the estimate: the limit is for what runs away, not for an estimate's error.
            "mem_limit": 2 * needed if needed else None,
            "device_requests": [_gpu_request(step.gpus, self._environment)] if step.gpus else None,
            "init": True,
            "labels": {LABEL: step.tool},
        }

    def _execute(
        self,
        step: Step,
        image: str,
        options: Mapping[str, Any],
        listener: Listener,
        sink: IO[bytes],
        log: Path,
    ) -> tuple[int, bool]:
        """Follow a container to its end; give its status, and whether memory ran out."""
        engine = self._engine()
        with self._container(image, options) as container:
            reader, writer = os.pipe()
            alive = container.attach_socket(params={"stdin": 1, "stream": 1})
            stream = container.attach(stdout=True, stderr=True, stream=True, demux=True)
            pump = threading.Thread(target=_pump, args=(stream, writer, sink), daemon=True)
            try:
                pump.start()
                container.start()
                listen(reader, step, listener, log, pump.is_alive)
                pump.join()
            finally:
                with suppress(Exception):
                    engine.api.kill(container.id)
                os.close(reader)
                alive.close()
            state = _ended(container)
        return int(state["ExitCode"]), bool(state["OOMKilled"])

    def _image(self, tool: ToolDefinition) -> str:
        """Give the tool's image, built where it is not there."""
        tool = tool.provider
        base = self._find_base(tool, pull=True)
        tag = _tag(tool, base)
        if self._find_image(tag) is None:
            self._install(tool, base, tag)
        return tag

    def _install(self, tool: ToolDefinition, base: Any, tag: str) -> None:
        """Install in a container, and keep it as an image.

        The user's pip settings are mounted, and gone from what is kept: they
        may hold passwords.
        """
        step = f"tool {tool.name}"
        self._on_event(StepEvent(step=step, state="running", detail="building its image, once"))
        log = new_log(self._log_dir, f"image-{tool.name}")
        from docker.types import Mount

        with tempfile.TemporaryDirectory(prefix="packager-pip-") as settings:
            config = Path(settings) / "pip.conf"
            config.write_text(_pip_settings(self._environment), encoding="utf-8")
            config.chmod(0o644)
            places = {tool.directory: "tool", self._environments.helper: "helper"}
            options = {
                "command": [
                    *("python3", "-I", f"{ROOT}/supervise.py", "-1"),
                    "python3",
                    f"{ROOT}/helper/install.py",
                    f"{ROOT}/tool",
                    *install_options(tool),
                ],
                "stdin_open": True,  # closed when we let go, or die: see supervise.py
                "entrypoint": [],
                "environment": {
                    "PIP_CONFIG_FILE": f"{ROOT}/pip/pip.conf",
                    "PIP_NO_CACHE_DIR": "1",
                    "PIP_BREAK_SYSTEM_PACKAGES": "1",
                    "PIP_ROOT_USER_ACTION": "ignore",
                },
                "user": "0:0",
                "network_mode": "host",
                "mounts": [
                    Mount(f"{ROOT}/pip", settings, type="bind", read_only=True),
                    Mount(f"{ROOT}/supervise.py", str(SUPERVISOR), type="bind", read_only=True),
                    *(
                        Mount(f"{ROOT}/{name}", str(place.absolute()), type="bind", read_only=True)
                        for place, name in places.items()
                    ),
                ],
            }
            with self._container(base.id, options) as container:
                with closing(container.attach_socket(params={"stdin": 1, "stream": 1})):
                    container.start()
                    began = time.monotonic()
                    while container.status != "exited":
                        time.sleep(0.2)
                        container.reload()
                        if time.monotonic() - began > INSTALL_TIMEOUT_S:
                            raise ToolUnavailable(f"installing tool {tool.name!r} takes too long")
                log.write_bytes(container.logs(stdout=False, stderr=True))
                if code := _ended(container)["ExitCode"]:
                    refuse_other_files(tool.name, log)
                    refuse_missing_build(tool, log)
                    raise ToolUnavailable(
                        f"the image of tool {tool.name!r} could not be built: status {code}",
                        hint=f"all of the installer's log is in {log}; your pip settings apply",
                        log=read_tail(log),
                    )
                versions = container.logs(stdout=True, stderr=False).decode().strip()
                made = {
                    LABEL: versions,
                    f"{LABEL}.hashes": tool.hashes,
                    f"{LABEL}.base": _name_of(base),
                }
                label = "LABEL " + " ".join(f"{key}={json.dumps(made[key])}" for key in made)
                plain = ["ENV PIP_CONFIG_FILE=", "ENV PIP_NO_CACHE_DIR="]
                repository, _, version = tag.partition(":")
                container.commit(repository, version, changes=[label, *plain, "USER root"])
        self._on_event(StepEvent(step=step, state="finished", detail=f"image {tag} built"))

    @contextmanager
    def _container(self, image: str, options: Mapping[str, Any]) -> Iterator[Any]:
        """Create a container; it is removed whatever happens, its name being known before."""
        from docker.errors import APIError, DockerException

        engine = self._engine()
        name = f"packager-step-{secrets.token_hex(6)}"
        try:
            yield engine.containers.create(image, name=name, **options)
        except APIError as error:
            raise Unavailable(
                f"the Docker Engine cannot run the step: {error.explanation or error}",
                hint="see whether it has what the step asks for: `docker info`",
            ) from error
        except (DockerException, OSError) as error:
            raise Unavailable(
                f"the connection to the Docker Engine was lost: {type(error).__name__}",
                hint="see whether it still runs: `docker info`",
            ) from error
        finally:
            with suppress(DockerException, OSError):
                engine.api.remove_container(name, force=True, v=True)

    def _find_base(self, tool: ToolDefinition, *, pull: bool) -> Any:
        """Give the image that the tool's is made from; fetched once where it is not here."""
        from docker.errors import APIError

        reference = self._base or tool.file.image
        found = self._find_image(reference)
        if found is not None or not pull:
            return found
        try:
            return self._engine().images.pull(reference)
        except APIError as error:
            raise NotFound(
                f"the base image {reference!r} of tool {tool.name!r} is not here and cannot be "
                f"pulled: {error.explanation or error}",
                hint="name another with PACKAGER_TOOL_BASE; it needs Python and pip",
            ) from error

    def _find_image(self, reference: str) -> Any:
        from docker.errors import APIError

        try:
            return self._engine().images.get(reference)
        except APIError:
            return None

    def _engine(self) -> Any:
        if self._client is None:
            self._client = connect_engine()
        return self._client


def _gpu_request(count: int, environment: Mapping[str, str]) -> Any:
    """Ask for GPUs: for any, or by name where only some of the machine's are ours."""
    from docker.types import DeviceRequest

    if "CUDA_VISIBLE_DEVICES" not in environment:
        return DeviceRequest(count=count, capabilities=[["gpu"]])
    names = visible_gpus(count, environment).split(",")
    return DeviceRequest(device_ids=names, capabilities=[["gpu"]])


def _python_of(reference: str) -> str:
    """Guess the Python of an image by its name, `python:3.12-slim`; "" where that says nothing."""
    named = PYTHON_IMAGE.search(reference)
    return named["minor"] if named else ""


def _name_of(base: Any) -> str:
    """Name a base by digest: as its registry knows it, else as the engine does."""
    known: list[str] = base.attrs.get("RepoDigests") or []
    return known[0] if known else str(base.id)


def _place_of(step: Step, role: str) -> str:
    return step.places.get(role, f"{ROOT}/inputs/{role}")


def _versions_of(image: Any) -> dict[str, str]:
    """Read the versions in an image's label; none where another tool wrote the label."""
    label = image.labels.get(LABEL, "{}")
    try:
        found = parse_object(label.encode()) if isinstance(label, str) else {}
    except (NotStrict, UnicodeEncodeError):
        return {}
    return {name: version for name, version in found.items() if isinstance(version, str)}


def _tag(tool: ToolDefinition, base: Any) -> str:
    """Name the image by what is in it: another base or requirement is another image."""
    identity = f"{tool.requirements_digest} {base.id}"
    return f"packager-tool-{tool.name}:{hashlib.sha256(identity.encode()).hexdigest()[:12]}"


def _pump(stream: Any, writer: int, sink: IO[bytes]) -> None:
    """Hand stdout on and put stderr into the log, until the container or the listener ends."""
    try:
        with suppress(Exception):  # the connection went away: the container's state says the rest
            for out, error in stream:
                if error:
                    sink.write(error)
                    sink.flush()
                if out:
                    os.write(writer, out)
    finally:
        os.close(writer)


def _ended(container: Any) -> Mapping[str, Any]:
    container.wait(timeout=60)
    container.reload()
    state: Mapping[str, Any] = container.attrs["State"]
    return state


def _pip_settings(environment: Mapping[str, str]) -> str:
    """Write the user's settings about indexes as a pip.conf."""
    lines = ["[global]"]
    for name in INDEX_SETTINGS:
        if value := environment.get(f"PIP_{name.upper().replace('-', '_')}"):
            lines.append(f"{name} = {value}")
    if len(lines) == 1:
        home = Path(environment.get("HOME", "/"))
        config = environment.get("XDG_CONFIG_HOME") or str(home / ".config")
        named = environment.get("PIP_CONFIG_FILE", "/dev/null")
        for file in (named, f"{config}/pip/pip.conf", home / ".pip/pip.conf", "/etc/pip.conf"):
            with suppress(OSError):
                if text := Path(file).read_text(encoding="utf-8"):
                    return text
    return "\n".join(lines) + "\n"

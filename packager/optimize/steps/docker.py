"""Runs a step in a container of the Docker Engine: the same worker, the same protocol.

The image of a tool is its base with the requirements installed by the same
`install.py` that makes local environments; the worker itself is mounted, so
that changing it installs nothing.  Inputs are mounted read-only, there is no
network, and the container is removed in whatever way the step ends.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from packager.core.errors import ToolUnavailable
from packager.core.events import EventSink
from packager.core.image import BaseImage
from packager.core.recipe import Step, StepResult
from packager.core.tool import Build, ToolFacts, build_for
from packager.images.docker_engine import connect_engine
from packager.optimize.steps.capacity import check_capacity, machine_capacity, visible_gpus
from packager.optimize.steps.docker_containers import ended, own_container
from packager.optimize.steps.docker_images import LABEL, ROOT, ToolImages
from packager.optimize.steps.logs import new_log
from packager.optimize.steps.processes import SUPERVISOR
from packager.optimize.steps.protocol import (
    BASE_ENV,
    Listener,
    ReadBlob,
    fetched_bytes,
    judge,
    lay_out,
    listen,
    make_spec,
    memory_settings,
    thread_settings,
)
from packager.optimize.steps.resume import kept_bytes, step_places
from packager.optimize.steps.tools.definition import ToolDefinition
from packager.optimize.steps.tools.environments import Environments


def cannot_load(base: BaseImage) -> str:
    """Raise: the default loader of base images, because none was configured."""
    raise ToolUnavailable(
        f"no loader is configured to load {base.reference!r} into the engine",
        hint="use --executor local",
    )


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
        self._client: Any = None
        self._images = ToolImages(
            self._engine,
            environments,
            base=base or self._environment.get("PACKAGER_TOOL_BASE", ""),
            log_dir=log_dir,
            on_event=on_event,
            environment=self._environment,
        )

    def find_tool(self, name: str, build: Build = "cpu") -> ToolFacts:
        """Describe the tool as its image has it, or as it declares itself."""
        tool = self._environments.tool(name, build)
        return tool.facts(None) if tool.file.in_serving_image else self._images.facts(tool)

    def prepare(self, name: str, build: Build = "cpu") -> None:
        """Build the tool's image where there is none; a step's own image is loaded when it runs."""
        tool = self._environments.tool(name, build)
        if not tool.file.in_serving_image:
            self._images.image(tool)

    def admit(self, step: Step) -> None:
        """Compare the step's needs with the free capacity, and with the work it has kept."""
        if self._check:
            kept = kept_bytes(self._work_dir, step)
            check_capacity(step, self.capacity(), fetched=fetched_bytes(step), kept=kept)

    def run(self, step: Step, into: Path) -> StepResult:
        """Run the worker in a container of its own, which is removed afterwards."""
        self.admit(step)
        tool = self._environments.tool(step.tool, build_for(step.gpus))
        image = self._images.image(tool) if step.image is None else self._load_image(step.image)
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
        """Return this machine's capacity; the engine must be local, since it mounts our files."""
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
                **memory_settings(step),
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
            # Twice the estimate: the limit only stops a runaway worker.
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
        """Follow a container to its end; return its status and whether it ran out of memory."""
        engine = self._engine()
        with own_container(engine, image, options) as container:
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
            state = ended(container)
        return int(state["ExitCode"]), bool(state["OOMKilled"])

    def _engine(self) -> Any:
        if self._client is None:
            self._client = connect_engine()
        return self._client


def _gpu_request(count: int, environment: Mapping[str, str]) -> Any:
    """Return the request for `count` GPUs, by id where only some of the machine's are visible."""
    from docker.types import DeviceRequest

    if "CUDA_VISIBLE_DEVICES" not in environment:
        return DeviceRequest(count=count, capabilities=[["gpu"]])
    names = visible_gpus(count, environment).split(",")
    return DeviceRequest(device_ids=names, capabilities=[["gpu"]])


def _place_of(step: Step, role: str) -> str:
    return step.places.get(role, f"{ROOT}/inputs/{role}")


def _pump(stream: Any, writer: int, sink: IO[bytes]) -> None:
    """Forward stdout and write stderr to the log until the container or the listener ends."""
    try:
        with suppress(Exception):  # on a lost connection the container's state has the result
            for out, error in stream:
                if error:
                    sink.write(error)
                    sink.flush()
                if out:
                    os.write(writer, out)
    finally:
        os.close(writer)

"""Runs a step as a subprocess in the tool's environment on this machine."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from packager.core.events import EventSink
from packager.core.recipe import Step, StepResult
from packager.core.tool import Build, ToolFacts, build_for
from packager.optimize.steps.capacity import (
    check_capacity,
    kernel_killed,
    machine_capacity,
    visible_gpus,
)
from packager.optimize.steps.logs import new_log
from packager.optimize.steps.processes import started
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
from packager.optimize.steps.tools.environments import Environments

# Processor instructions are in the keys of compiles only: all machines share the other results.
# These two limit the instructions of oneDNN and PyTorch, and are treated the same. Steps in images
# do not get them: their keys name instructions.
PROCESSOR_CAPS = ("ONEDNN_MAX_CPU_ISA", "ATEN_CPU_CAPABILITY")


class LocalExecutor:
    """Runs one step at a time, in a private directory, without our environment except caps."""

    name = "local"

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
    ) -> None:
        self._environments = environments
        self._work_dir = work_dir
        self._log_dir = log_dir
        self._read = read
        self._on_event = on_event
        self._check = check
        self._restart = restart

    def find_tool(self, name: str, build: Build = "cpu") -> ToolFacts:
        """Describe the tool as its environment has it, or as it declares itself."""
        return self._environments.facts(name, build)

    def prepare(self, name: str, build: Build = "cpu") -> None:
        """Install the tool's environment unless it exists."""
        self._environments.install(name, build)

    def admit(self, step: Step) -> None:
        """Compare the step's needs with the free capacity, and with the work it has kept."""
        if self._check:
            kept = kept_bytes(self._work_dir, step)
            check_capacity(step, self.capacity(), fetched=fetched_bytes(step), kept=kept)

    def run(self, step: Step, into: Path) -> StepResult:
        """Run the worker; it ends with us, whatever ends us."""
        self.admit(step)
        build = build_for(step.gpus)
        tool = self._environments.tool(step.tool, build)
        with (
            self._environments.in_use(step.tool, build) as python,
            step_places(self._work_dir, step, restart=self._restart) as (place, kept),
        ):
            log = new_log(self._log_dir, step.name)
            lay_out(step, place, self._read, self._on_event, work=kept)
            spec = make_spec(step, root=str(place), output=str(into.absolute()))
            (place / "spec.json").write_text(spec.model_dump_json(), encoding="utf-8")
            command = [str(python), str(tool.worker), str(place / "spec.json")]
            environment = self._environment(step, place, python)
            killed_before = kernel_killed()
            with log.open("ab") as sink:
                listener = Listener(step, sink, self._on_event)
                with started(command, cwd=place / "work", env=environment, log=sink) as worker:
                    listen(worker.stdout, step, listener, log, worker.running)
                    ended = worker.wait()
            result = judge(
                step,
                ended.code,
                place / "answer/result.json",
                into,
                listener,
                log,
                oom=ended.code == -9 and kernel_killed() > killed_before,
            )
        return replace(
            result, peak_memory_bytes=max(result.peak_memory_bytes, ended.peak_memory_bytes)
        )

    def capacity(self) -> Mapping[str, float]:
        """Return this machine's capacity, with the disk where steps work."""
        return machine_capacity(self._work_dir)

    def _environment(self, step: Step, place: Path, python: Path) -> dict[str, str]:
        return {
            **BASE_ENV,
            "PATH": f"{python.parent}:/usr/local/bin:/usr/bin:/bin",
            "HOME": str(place / "home"),
            "TMPDIR": str(place / "tmp"),
            "PYTHONPATH": str(self._environments.helper),
            "CUDA_VISIBLE_DEVICES": visible_gpus(step.gpus),
            **{name: os.environ[name] for name in PROCESSOR_CAPS if name in os.environ},
            **thread_settings(step),
            **memory_settings(step),
            **step.env,
        }

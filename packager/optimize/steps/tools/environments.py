"""Managed virtual environments: one for each tool that installs, its requirements and Python.

    <cache>/tools/<tool>-<digest>/           a virtual environment
    <cache>/tools/<tool>-<digest>/made.json  written last: without it, nothing was made
    <cache>/tools/<tool>-<digest>.lock       a kernel lock, never removed

An environment cannot be moved, so it is made where it will be, under a lock
that the kernel drops with its last holder: the installer holds it too, so that
the next one waits for what still runs of one that was killed.  Whatever that
left has no `made.json` and is removed.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import platform
import selectors
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packager.core.errors import NotFound, OutputFailed, ToolUnavailable, UsageError
from packager.core.events import EventSink, StepEvent, StepState
from packager.core.files.atomic import explain_disk_errors, write_atomically
from packager.core.tool import Build, ToolFacts
from packager.core.units import decimal
from packager.optimize.steps.capacity import free_bytes
from packager.optimize.steps.failures import read_tail
from packager.optimize.steps.logs import new_log
from packager.optimize.steps.processes import Supervised, started
from packager.optimize.steps.tools.definition import ToolDefinition, read_tool
from packager.optimize.steps.tools.installers import (
    ALLOW_UNHASHED,
    install_options,
    pip_has_an_index,
    progress_in,
    reason_in,
    refuse_missing_build,
    refuse_other_files,
)
from packager.optimize.steps.tools.locks import minor_of, normal

MADE = "made.json"
# Not for installers: they are another Python's, and may run the code of packages.
OURS = (
    *("PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "VIRTUAL_ENV", "__PYVENV_LAUNCHER__"),
    "PACKAGER_CLAIM_KEY",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """An environment that is there."""

    tool: str
    place: Path
    current: bool  # made from the tool's present requirements
    bytes: int
    hashes: str  # "verified", "not verified" or "not asked for"; "" of those made before 0.2
    build: Build = "cpu"  # of torch
    torch: str = ""  # its version; "" where there is none


class Environments:
    """Tool environments below one directory: creates, finds and removes them."""

    def __init__(
        self,
        root: Path,
        *,
        find_directory: Callable[[str], Path],
        helper: Path,
        log_dir: Path,
        environment: Mapping[str, str],
        on_event: EventSink,
    ) -> None:
        self.helper = helper
        self._root = root
        self._find_directory = find_directory
        self._log_dir = log_dir
        self._environment = environment
        self._on_event = on_event
        self._tools: dict[tuple[str, Build], ToolDefinition] = {}
        self._allow_unhashed = environment.get(ALLOW_UNHASHED, "") not in ("", "0")

    def tool(self, name: str, build: Build = "cpu") -> ToolDefinition:
        """Read a tool's directory, once."""
        if (name, build) not in self._tools:
            tool = self._read(name)
            lender = tool.file.environment
            tool = tool.borrowing(self._read(lender)) if lender else tool
            self._tools[name, build] = tool.for_build(build)
        return self._tools[name, build]

    def _read(self, name: str) -> ToolDefinition:
        tool = read_tool(name, self._find_directory(name), self.helper)
        return tool.without_hashes() if self._allow_unhashed else tool

    def facts(self, name: str, build: Build = "cpu") -> ToolFacts:
        """Describe a tool with the versions that its environment has, if it has one."""
        tool = self.tool(name, build)
        if tool.file.in_serving_image:
            return tool.facts(None)
        python = minor_of(platform.python_version())
        return tool.facts(_made(self.place(name, build)), python=python)

    def place(self, name: str, build: Build = "cpu") -> Path:
        """Return where the environment is, or would be."""
        tool = self.tool(name, build).provider
        python = platform.python_version_tuple()
        identity = f"{tool.requirements_digest} {python[0]}.{python[1]} {platform.machine()}"
        digest = hashlib.sha256(identity.encode()).hexdigest()[:12]
        return self._root / f"{tool.name}-{digest}"

    def install(self, name: str, build: Build = "cpu") -> Path:
        """Create the environment unless it exists; return its Python.

        Locked against other processes.
        """
        if self.tool(name, build).file.in_serving_image:
            raise ToolUnavailable(
                f"tool {name!r} runs in the serving image itself, not in an environment here",
                hint="add --executor docker to the build, or leave out what it works for: "
                "`--compile off`, or no `--load-format sharded_state`",
            )
        place = self.place(name, build)
        if _made(place) is None:
            with explain_disk_errors(place):
                self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
                with self._lock(place) as lock:
                    if _made(place) is None:
                        self._make(self.tool(name, build).provider, place, lock)
        return place / "bin" / "python"

    @contextmanager
    def in_use(self, name: str, build: Build = "cpu") -> Iterator[Path]:
        """Yield the environment's Python, created if needed, and keep it from being removed."""
        place = self.place(name, build)
        while True:
            python = self.install(name, build)
            descriptor = os.open(f"{place}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(descriptor, fcntl.LOCK_SH)
            if _made(place) is not None:  # it was not removed in between
                break
            os.close(descriptor)
        try:
            yield python
        finally:
            os.close(descriptor)

    def remove(self, name: str) -> list[Path]:
        """Remove every environment of a tool, old ones too; return those removed."""
        if lender := self._lender(name):
            raise UsageError(
                f"tool {name!r} runs in the environment of {lender!r}",
                hint=f"remove that: `packager tools rm {lender}`",
            )
        removed = []
        for found in self.installed():
            if found.tool == name:
                with explain_disk_errors(found.place), self._lock(found.place, wait=False):
                    (found.place / MADE).unlink(missing_ok=True)
                    shutil.rmtree(found.place)
                    removed.append(found.place)
        return removed

    def installed(self) -> list[Installed]:
        """Find the environments that were made."""
        found = []
        for marker in sorted(self._root.glob(f"*/{MADE}")):
            name, _, _ = marker.parent.name.rpartition("-")
            document = _document(marker.parent) or {}
            build: Build = "cuda" if document.get("build") == "cuda" else "cpu"
            current = False
            with suppress(Exception):  # tools come and go; their environments stay to be removed
                current = self.place(name, build) == marker.parent
            found.append(
                Installed(
                    tool=name,
                    place=marker.parent,
                    current=current,
                    bytes=int(document.get("bytes", 0)),
                    hashes=str(document.get("hashes", "")),
                    build=build,
                    torch=str(document.get("versions", {}).get("torch", "")),
                )
            )
        return found

    def _lender(self, name: str) -> str:
        """Return the tool whose environment a tool shares; "" for a tool with its own.

        "" when it has its own, or the tool is gone.
        """
        with suppress(NotFound):
            return self.tool(name).file.environment
        return ""

    def _make(self, tool: ToolDefinition, place: Path, lock: int) -> None:
        need = tool.disk_gb * 1e9
        if free_bytes(self._root) < need:
            raise OutputFailed(
                f"tool {tool.name!r} needs {decimal(need)} of disk space, "
                f"{decimal(free_bytes(self._root))} are free",
                hint=f"free some space on the file system of {self._root}",
            )
        if place.exists():
            self._say(tool.name, "removing what an interrupted installation left")
            shutil.rmtree(place)
        making = f"making its environment, once ({decimal(need)} of disk)"
        self._say(tool.name, making, state="started")
        python = _base_python(tool)
        self._run(tool, [python, "-m", "venv", *self._without_pip(tool), str(place)], lock)
        command = [str(place / "bin/python"), str(self.helper / "install.py"), str(tool.directory)]
        command += install_options(tool)
        if uv := self._uv():
            command += ["--uv", uv]
        if tool.allow_unhashed:
            self._say(tool.name, f"its packages are not compared with hashes: {ALLOW_UNHASHED}")
        versions: dict[str, str] = json.loads(self._run(tool, command, lock))
        lower = {normal(name) for name in versions}
        if missing := [name for name in tool.file.packages if normal(name) not in lower]:
            raise ToolUnavailable(
                f"the requirements of tool {tool.name!r} do not bring {', '.join(missing)}",
                hint="its tool.toml and requirements must agree",
            )
        size = sum(file.lstat().st_size for file in place.rglob("*"))
        document = {
            "tool": tool.name,
            "versions": versions,
            "bytes": size,
            "hashes": tool.hashes,
            "requirements": tool.requirements_digest,
            "build": tool.build,
        }
        write_atomically(place / MADE, json.dumps(document, sort_keys=True).encode())
        self._say(tool.name, f"environment made, {decimal(size)}", state="finished")

    def _run(self, tool: ToolDefinition, command: list[str], lock: int) -> bytes:
        """Run an installer's command and return its stdout. It ends with us, and holds our lock."""
        log = new_log(self._log_dir, f"install-{tool.name}")
        environment = {name: value for name, value in self._environment.items() if name not in OURS}
        with (
            tempfile.TemporaryDirectory(prefix="packager-install-") as work,
            log.open("wb") as sink,
            started(
                command, cwd=Path(work), env=environment, log=sink, holding=(lock,)
            ) as installer,
        ):
            output = self._follow(tool, installer, log)
            ended = installer.wait()
        if ended.code:
            refuse_other_files(tool.name, log)
            refuse_missing_build(tool, log)
            raise ToolUnavailable(
                f"tool {tool.name!r} could not be installed: {reason_in(read_tail(log))}",
                hint=f"all of the installer's log is in {log}; your pip settings apply",
                log=read_tail(log),
            )
        return output

    def _follow(self, tool: ToolDefinition, installer: Supervised, log: Path) -> bytes:
        """Read stdout to its end, and report the installer's progress."""
        output, said = b"", ""
        with selectors.DefaultSelector() as selector:
            selector.register(installer.stdout, selectors.EVENT_READ)
            while True:
                if selector.select(2.0):
                    data = os.read(installer.stdout, 65536)
                    if not data:
                        return output
                    output += data
                    continue
                line = progress_in(read_tail(log))
                if line and line != said:
                    said = line
                    self._say(tool.name, line)

    def _uv(self) -> str | None:
        """Return uv's path, unless the user configured only pip's package index."""
        uv = shutil.which("uv", path=self._environment.get("PATH"))
        if uv is None or any(name.startswith("UV_") for name in self._environment):
            return uv
        return None if pip_has_an_index(self._environment) else uv

    def _without_pip(self, tool: ToolDefinition) -> list[str]:
        return [] if tool.file.install and not self._uv() else ["--without-pip"]

    def _say(self, tool: str, detail: str, state: StepState = "running") -> None:
        self._on_event(StepEvent(step=f"tool {tool}", state=state, detail=detail))

    @contextmanager
    def _lock(self, place: Path, *, wait: bool = True) -> Iterator[int]:
        """Lock the environment exclusively; report when that means waiting."""
        descriptor = os.open(f"{place}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if not wait:
                    raise UsageError(
                        f"{place.name} is in use: a step runs in it, or it is being made",
                        hint="wait until that has ended",
                    ) from None
                self._say(place.name, "waiting for another process that installs it")
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield descriptor
        finally:
            os.close(descriptor)


def _document(place: Path) -> dict[str, Any] | None:
    try:
        document: Any = json.loads((place / MADE).read_bytes())
    except (OSError, ValueError):
        return None
    return document if isinstance(document, dict) and "versions" in document else None


def _made(place: Path) -> dict[str, str] | None:
    """Return the versions in an environment; None when it is incomplete.

    One whose Python has gone, with the installation that it was made from, is made anew.
    """
    document = _document(place)
    return document["versions"] if document and (place / "bin/python").exists() else None


def _base_python(tool: ToolDefinition) -> str:
    """Return the Python to make an environment with: ours, where the tool allows it."""
    ours = platform.python_version()
    if allows(tool.file.python, ours):
        return sys.executable
    raise ToolUnavailable(
        f"tool {tool.name!r} needs Python {tool.file.python}, packager runs on {ours}",
        hint="install packager with such a Python, or use --executor docker",
    )


def allows(wanted: str, version: str) -> bool:
    """Check whether a version of Python meets version specifiers: `>=3.11,<3.14`."""
    from packaging.specifiers import SpecifierSet

    return SpecifierSet(wanted).contains(version, prereleases=True)

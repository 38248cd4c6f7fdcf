"""Runs commands of packager for pages, which show the same words and figures as a terminal."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from packager.core.documents import NotStrict, parse_json
from packager.core.errors import PackagerError
from packager.core.text import escape

AT_ONCE = 2  # commands that run at the same time; the others wait
LIMIT_S = 120.0  # how long one may take
FAR_S = 30.0  # for commands that connect to a registry, which may never answer
_MOST_BYTES = 64 * 1024 * 1024


def page_command_failed(message: str, *, hint: str = "") -> PackagerError:
    """Return an error: a command reported an error."""
    return PackagerError(message, hint=hint, code="PageCommandFailed")


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandOutput:
    """A command's output and exit status."""

    status: int
    stdout: bytes
    stderr: bytes

    def document(self) -> Any:
        """Return the JSON on stdout; raises `PackagerError` where there is none."""
        try:
            return parse_json(self.stdout, max_bytes=_MOST_BYTES)
        except NotStrict as error:
            raise self.failure() from error

    def refusal(self) -> Mapping[str, Any]:
        """Return the JSON error of a failed command; empty where it printed none."""
        for output in (self.stderr, self.stdout):
            with suppress(NotStrict):
                found = parse_json(output, max_bytes=_MOST_BYTES)
                if isinstance(found, Mapping) and isinstance(found.get("message"), str):
                    return found
        return {}

    def failure(self) -> PackagerError:
        """Return the command's error: its JSON message, else its last line."""
        if found := self.refusal():
            return page_command_failed(found["message"], hint=str(found.get("hint") or ""))
        lines = self.stderr.decode(errors="replace").strip().splitlines()
        last = escape(lines[-1])[:500] if lines else f"the command ended with {self.status}"
        return page_command_failed(last.removeprefix("error: "), hint="")


@dataclass(frozen=True, slots=True)
class CommandRunner:
    """Runs `packager`, a few at a time; commands that use the network have their own limit."""

    program: tuple[str, ...] = (sys.executable, "-m", "packager")
    limit_s: float = LIMIT_S
    far_s: float = FAR_S
    _gate: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AT_ONCE))
    _far: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AT_ONCE))

    async def run(self, *arguments: str) -> CommandOutput:
        """Return the output of a command that stays on this machine; raises as `run_far`."""
        return await self._run(self._gate, self.limit_s, arguments)

    async def run_far(self, *arguments: str) -> CommandOutput:
        """Return the output of a command that connects to other machines.

        Raises `PackagerError` for one that takes too long. A thread waits for the process:
        asyncio's own never end when the loop is closed while they start, and leave pipes behind.
        Cancelling kills the process and its children.
        """
        return await self._run(self._far, self.far_s, arguments)

    async def _run(
        self, gate: asyncio.Semaphore, limit_s: float, arguments: tuple[str, ...]
    ) -> CommandOutput:
        async with gate:
            process = subprocess.Popen(
                (*self.program, *arguments),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
            try:
                stdout, stderr = await asyncio.to_thread(_wait, process, limit_s)
            except subprocess.TimeoutExpired:
                raise page_command_failed(
                    f"`packager {arguments[0]}` took longer than {limit_s:g} s",
                    hint="run it in a terminal",
                ) from None
            except asyncio.CancelledError:
                _kill(process)
                raise
        return CommandOutput(status=process.returncode, stdout=stdout, stderr=stderr)

    async def run_on_request(self, request: Mapping[str, Any], *arguments: str) -> CommandOutput:
        """Run a command on a request of packager, which it reads from a file."""
        with tempfile.TemporaryDirectory(prefix="packager-ui-") as folder:
            file = Path(folder) / "request.json"
            file.write_text(json.dumps(request), encoding="utf-8")
            command, *options = arguments
            arguments = (command, "--request", str(file), *options)
            return await self._run(self._far, self.limit_s, arguments)

    async def document(self, *arguments: str) -> Any:
        """Return a command's JSON output; raises `PackagerError`."""
        output = await self.run(*arguments, "--format", "json")
        if output.status:
            raise output.failure()
        return output.document()


def _wait(process: subprocess.Popen[bytes], limit_s: float) -> tuple[bytes, bytes]:
    with process:
        try:
            return process.communicate(timeout=limit_s)
        finally:
            _kill(process)


def _kill(process: subprocess.Popen[bytes]) -> None:
    if process.returncode is None:  # else its number may be another's
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)

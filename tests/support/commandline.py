"""Running the real command line in a process of its own."""

from __future__ import annotations

import functools
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from tests.support.places import ROOT

TINY = ROOT / "examples" / "tiny-llama"

# Hundreds of tests run the command line: each would compile all of it anew, as no user's does.
# Here, because `OWN` below is what tests are compared with, long after it was taken.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


@dataclass(frozen=True)
class Done:
    """A finished command."""

    status: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """What it printed, as JSON."""
        return json.loads(self.out)


Packager = Callable[..., Done]


def printed(packager: Packager, *words: str) -> str:
    """Return what a command prints that must succeed, without the last newline."""
    return packager(*words, status=0).out.strip()


def packager_in(directory: Path, *, timeout_s: float = 1000) -> Packager:
    """Return a function that runs `packager` with arguments from `directory`.

    Its process is a fork of one that has packager's modules (see `preloaded_commands`); where the
    environment asks something of Python itself, but for the packages of `outside`, it is a new one.
    """

    def run(
        *arguments: str,
        cwd: Path = directory,
        env: Mapping[str, str] | None = None,
        merged: bool = False,  # stderr goes to `out`, too
        status: int | None = None,  # what it must end with
    ) -> Done:
        done = ended(*arguments, cwd=cwd, env=env, merged=merged)
        assert status in (None, done.status), done.err
        return done

    def ended(*arguments: str, cwd: Path, env: Mapping[str, str] | None, merged: bool) -> Done:
        whole = {**os.environ, **(env or {})}
        python = _of_python(whole)
        if python in (OWN, WITH_OUTSIDE):
            preloaded = _preloaded(python.get("PYTHONPATH"))
            return preloaded.run(arguments, cwd, whole, timeout_s, merged=merged)
        done = subprocess.run(
            [sys.executable, "-m", "packager", *arguments],
            cwd=cwd,
            env=whole,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if merged else subprocess.PIPE,
            text=True,
            timeout=timeout_s,
        )
        return Done(done.returncode, done.stdout, done.stderr or "")

    return run


class Started:
    """A command that runs, as `subprocess.Popen` has it."""

    def __init__(self, pid: int, reports: IO[bytes], out: IO[str], err: IO[bytes]) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self.stdout = out
        self._reports = reports
        self._err = err

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def poll(self) -> int | None:
        with suppress(subprocess.TimeoutExpired):
            return self.wait(0.0)
        return None

    def wait(self, timeout_s: float | None = None) -> int:
        if self.returncode is None:
            if not select.select([self._reports], [], [], timeout_s)[0]:
                raise subprocess.TimeoutExpired(["packager"], timeout_s or 0.0)
            self.returncode = int(self._reports.readline())
        return self.returncode

    def communicate(self, timeout: float) -> tuple[str, str]:
        """Wait for the end; return what is left of stdout, and all of stderr."""
        self.wait(timeout)
        return self.stdout.read(), _written(self._err)

    def close(self) -> None:
        """Let go of its streams."""
        for stream in (self._reports, self.stdout, self._err):
            stream.close()


def start_packager(*arguments: str, env: Mapping[str, str], log: Path | None = None) -> Started:
    """Start a command whose end is not waited for, in a fork; `env` is what differs from ours.

    Its stderr is added to `log` where that is given.
    """
    preloaded = _preloaded(OWN.get("PYTHONPATH"))
    return preloaded.start(arguments, Path.cwd(), {**os.environ, **env}, log)


@dataclass(frozen=True)
class Preloaded:
    """A process that forks commands."""

    requests: socket.socket

    def start(
        self, arguments: tuple[str, ...], cwd: Path, env: Mapping[str, str], log: Path | None = None
    ) -> Started:
        """Start a command; its stdout is a pipe."""
        out, written = os.pipe()
        err = log.open("a+b") if log else tempfile.TemporaryFile()  # noqa: SIM115
        try:
            lines = self._begin(arguments, cwd, env, written, err.fileno())
        finally:
            os.close(written)
        return Started(int(lines.readline()), lines, os.fdopen(out), err)

    def run(
        self,
        arguments: tuple[str, ...],
        cwd: Path,
        env: Mapping[str, str],
        timeout_s: float,
        *,
        merged: bool = False,
    ) -> Done:
        """Run a command to its end."""
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            told = out if merged else err
            with self._begin(arguments, cwd, env, out.fileno(), told.fileno()) as lines:
                pid = int(lines.readline())
                if not select.select([lines], [], [], timeout_s)[0]:
                    os.kill(pid, signal.SIGKILL)
                    raise subprocess.TimeoutExpired(["packager", *arguments], timeout_s)
                status = int(lines.readline())
            return Done(status, _written(out), _written(err))

    def _begin(
        self, arguments: tuple[str, ...], cwd: Path, env: Mapping[str, str], *streams: int
    ) -> IO[bytes]:
        """Ask for a command with this stdout and stderr; its pid and its status can be read."""
        asked = {"arguments": arguments, "cwd": str(cwd), "env": dict(env)}
        reports, report = os.pipe()
        with Path(os.devnull).open() as nothing:
            try:
                given = [nothing.fileno(), *streams, report]
                socket.send_fds(self.requests, [json.dumps(asked).encode()], given)
            finally:
                os.close(report)
        # Unbuffered: `select` must see the status, though the pid was read before it.
        return os.fdopen(reports, "rb", buffering=0)


@functools.cache
def _preloaded(path: str | None) -> Preloaded:
    """Start the process with this PYTHONPATH; it ends when this one does."""
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    subprocess.Popen(
        [sys.executable, "-m", "tests.support.preloaded_commands", str(there.fileno())],
        cwd=ROOT,
        env={**_without_path(os.environ), **({} if path is None else {"PYTHONPATH": path})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        pass_fds=(there.fileno(),),
    )
    there.close()
    return Preloaded(here)


def _of_python(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that an interpreter reads when it starts."""
    return {name: value for name, value in environment.items() if name.startswith("PYTHON")}


def _without_path(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name != "PYTHONPATH"}


# What Python is told as the tests begin, and with packages that bring plug-ins.
OWN = _of_python(os.environ)
WITH_OUTSIDE = {**OWN, "PYTHONPATH": str(Path(__file__).parent / "outside")}


def _written(stream: IO[bytes]) -> str:
    stream.seek(0)
    return stream.read().decode().replace("\r\n", "\n").replace("\r", "\n")

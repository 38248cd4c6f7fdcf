"""The process that prints request templates, with limits of processor time and memory."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from packager.addons.bench.load import template_sandbox

RENDER_S = 5.0  # of processor time, for one body
MOST_BYTES = 1024**3  # of memory
_LONGEST_S = 60.0  # of a busy machine's time
_KEPT = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "LANG", "LC_ALL")  # no credentials


class TemplatePrinter:
    """Sends orders to the sandbox; a process that was ended is followed by a new one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0

    def ask(self, order: Mapping[str, Any]) -> dict[str, Any]:
        """Return the sandbox's answer; its `fault` says what is wrong with the template."""
        with self._lock:
            process = self._running()
            try:
                line = self._sent(process, json.dumps(order).encode() + b"\n")
                said: dict[str, Any] = json.loads(line)
            except (OSError, ValueError):
                process.kill()
                status = process.wait()
                self._close()
                if status in (-signal.SIGPROF, -signal.SIGKILL):
                    return {"fault": f"fails: 'it takes over {RENDER_S:g} s'"}
                reason = f"it needs over {MOST_BYTES // 1024**2} MiB of memory, or nests too deeply"
                return {"fault": f"fails: '{reason}'"}
            return said

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._owner != os.getpid() or self._process.poll() is not None:
            self._close()
            program = str(Path(template_sandbox.__file__))
            self._process = subprocess.Popen(
                [sys.executable, "-P", program, str(RENDER_S), str(MOST_BYTES)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={name: os.environ[name] for name in _KEPT if name in os.environ},
            )
            self._owner = os.getpid()
        return self._process

    def _sent(self, process: subprocess.Popen[bytes], line: bytes) -> bytes:
        """Return the line that answers a line; raise `OSError` where none comes."""
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(line)
        process.stdin.flush()
        found, ends_s = b"", time.monotonic() + _LONGEST_S
        while not found.endswith(b"\n"):
            if not select.select([process.stdout], [], [], max(0.0, ends_s - time.monotonic()))[0]:
                raise TimeoutError
            piece = os.read(process.stdout.fileno(), 1024 * 1024)
            if not piece:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(_LONGEST_S)  # for the status that it ends with
                raise BrokenPipeError
            found += piece
        return found

    def _close(self) -> None:
        process, self._process = self._process, None
        for pipe in (process.stdin, process.stdout) if process is not None else ():
            with contextlib.suppress(OSError):
                if pipe is not None:
                    pipe.close()

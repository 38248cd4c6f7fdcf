"""Runs one command so that nothing of it is left, whatever happens to packager.

    python -I supervise.py STATUS_FD COMMAND...

Started by `processes.start` with the read end of a pipe as stdin.  The pipe
closes when packager lets go of it, or dies in whatever way; then the command
and everything it started is killed, also what made itself a daemon.  A script
of its own, because a thread or a signal handler dies with the process.  In a
container stdin is our connection, and STATUS_FD is -1: the exit status says it.
"""

from __future__ import annotations

import ctypes
import json
import os
import selectors
import signal
import sys
from contextlib import suppress
from pathlib import Path

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36


def main() -> None:
    """Run, wait for the end of the command or of packager, kill the rest, report."""
    status_fd, command = int(sys.argv[1]), sys.argv[2:]
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    woken, waker = os.pipe()
    os.set_blocking(waker, False)
    signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    worker = _start(command, status_fd, libc)
    selector = selectors.DefaultSelector()
    selector.register(0, selectors.EVENT_READ)
    selector.register(woken, selectors.EVENT_READ)
    status = None
    while status is None:
        ready = {key.fd for key, _ in selector.select()}
        if woken in ready:
            os.read(woken, 4096)
        status = _reap(worker)
        if status is None and 0 in ready and not os.read(0, 1):
            break
    _kill_everything()
    if status is None:
        sys.exit(137)
    if status_fd >= 0:
        with suppress(OSError):
            os.write(status_fd, json.dumps(status).encode())
    sys.exit(status["code"] if status["code"] >= 0 else 128 - status["code"])


def _start(command: list[str], status_fd: int, libc: ctypes.CDLL) -> int:
    ours = os.getpid()
    worker = os.fork()
    if worker:
        return worker
    try:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != ours:
            os._exit(127)
        signal.set_wakeup_fd(-1)
        if status_fd >= 0:
            os.close(status_fd)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        with suppress(OSError):  # when memory runs out, the worker goes and not packager
            Path("/proc/self/oom_score_adj").write_text("500")
        os.execvp(command[0], command)
    except OSError as error:
        sys.stderr.write(f"cannot run {command[0]!r}: {error.strerror}\n")
        sys.stderr.flush()
    finally:
        os._exit(127)


def _reap(worker: int) -> dict[str, int] | None:
    """Collect what ended; give the worker's status once it is among them."""
    while True:
        try:
            pid, status, usage = os.wait4(-1, os.WNOHANG)
        except ChildProcessError:
            return None
        if pid == 0:
            return None
        if pid == worker:
            code = os.waitstatus_to_exitcode(status)
            return {"code": code, "peak_memory_bytes": usage.ru_maxrss * 1024}


def _kill_everything() -> None:
    """Kill children until there are none: orphans of those that die become ours."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    while True:
        children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
        for child in children:
            with suppress(ProcessLookupError):
                os.kill(int(child), signal.SIGKILL)
        try:
            os.wait()
        except ChildProcessError:
            return


if __name__ == "__main__":
    main()

"""Workers in forks of a process that has their libraries, which take seconds to load.

Run by a tool's own Python as a script: `preloaded.py SOCKET MODULE…`.  A request is a JSON document
on the socket, with the descriptors of the worker's stdout and stderr; the answer is its pid.
Where the socket listens, each request has a connection of its own: the answer is the worker's
status, and the worker is killed when the other end is closed.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

LARGEST = 1_000_000  # bytes of a request


def serve(requests: socket.socket) -> None:
    """Fork a worker for each request, until the other end is closed."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them here
    gc.freeze()
    while True:
        data, descriptors, _, _ = socket.recv_fds(requests, LARGEST, 2)
        if not data:
            return
        pid = os.fork()
        if pid == 0:
            requests.close()
            run(json.loads(data), *descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        requests.send(f"{pid}\n".encode())


def listen(requests: socket.socket) -> None:
    """Fork for each connection, until stdin is closed."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    gc.freeze()
    while requests in select.select([requests, 0], [], [])[0]:
        connection, _ = requests.accept()
        with connection:
            if os.fork() == 0:
                requests.close()
                keep(connection)


def keep(connection: socket.socket) -> NoReturn:
    """Fork the worker; end when it has ended, and end it when nobody waits for it."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    data, descriptors, _, _ = socket.recv_fds(connection, LARGEST, 2)
    pid = os.fork()
    if pid == 0:
        connection.close()
        run(json.loads(data), *descriptors)
    for descriptor in descriptors:
        os.close(descriptor)
    worker = os.pidfd_open(pid)
    if connection in select.select([connection, worker], [], [])[0]:
        os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    with suppress(OSError):
        connection.send(f"{os.waitstatus_to_exitcode(status)}\n".encode())
    os._exit(0)


def run(asked: dict[str, Any], stdout: int, stderr: int) -> NoReturn:
    """Become the worker: its directory, environment, arguments and streams."""
    status = 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.dup2(stdout, 1)
        os.dup2(stderr, 2)
        os.close(stdout)
        os.close(stderr)
        os.chdir(asked["cwd"])
        os.environ.clear()
        os.environ.update(asked["env"])
        tempfile.tempdir = None  # TMPDIR is another
        worker, *arguments = asked["command"]
        sys.argv = [worker, *arguments]
        own = asked["env"].get("PYTHONPATH", "").split(os.pathsep)
        sys.path[:0] = [str(Path(worker).parent), *filter(None, own)]
        runpy.run_path(worker, run_name="__main__")
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    gc.disable()  # what is loaded stays: looking for garbage in it is a third of loading
    for name in sys.argv[2:]:
        importlib.import_module(name)
    gc.enable()
    requests = socket.socket(fileno=int(sys.argv[1]))
    if requests.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        listen(requests)
    else:
        serve(requests)

"""The command line in forks of a process that has its modules, which take most of a short command.

Run as `python -m tests.support.preloaded_commands SOCKET`.  A request is a JSON document on the
socket, with four descriptors: stdin, stdout and stderr of the command, and a pipe.  The pipe
takes the command's pid, and its status when it has ended.  A command is a process of its own,
with the directory, the environment and the arguments that were asked for; it ends as any program
does.
"""

from __future__ import annotations

import gc
import importlib
import inspect
import json
import os
import runpy
import signal
import socket
import sys
import time
from typing import Any

LARGEST = 1_000_000  # bytes of a request

# What commands import.  Nothing that reads the environment when it is imported.
MODULES = (
    "packager.cli.app",
    "packager.cli.bench",
    "packager.cli.build",
    "packager.cli.cache",
    "packager.cli.cache_entries",
    "packager.cli.check",
    "packager.cli.copy",
    "packager.cli.inspect",
    "packager.cli.jobs",
    "packager.cli.lineage",
    "packager.cli.list_",
    "packager.cli.plan",
    "packager.cli.report",
    "packager.cli.serve",
    "packager.cli.version",
    "packager.wiring",
    "packager.images.layout.sink",
    "packager.images.registry.sink",
    "packager.engines.vllm.family",
    "packager.engines.tgi.family",
    "packager.engines.lmi.family",
    "jinja2",
    "tarfile",
    "urllib3",
)
# Whose functions without arguments, where they are cached, read files that packager ships.
TABLES = ("architectures", "catalog", "checkpoints", "engines", "keys", "performance", "sizing")


def read_tables() -> int:
    """Fill the caches of shipped tables; return how many there are."""
    count = 0
    for name, module in sorted(sys.modules.items()):
        if not name.startswith(tuple(f"packager.{room}." for room in TABLES)):
            continue
        for function in list(vars(module).values()):
            if not hasattr(function, "cache_info") or function.__module__ != name:
                continue
            given = inspect.signature(function).parameters.values()
            if all(one.default is not one.empty for one in given):
                function()
                count += 1
    return count


def serve(requests: socket.socket) -> dict[str, Any] | None:
    """Fork for each request. Return it in the fork; None when the other end was closed."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # keepers report by themselves
    gc.collect()
    gc.freeze()
    while True:
        data, descriptors, _, _ = socket.recv_fds(requests, LARGEST, 4)
        if not data:
            return None
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            requests.close()
            *streams, report = descriptors
            keep(report)
            asked: dict[str, Any] = json.loads(data)
            take_place(asked, streams)
            return asked
        for descriptor in descriptors:
            os.close(descriptor)


def keep(report: int) -> None:
    """Fork the command and return in it; its parent reports its pid and status, and ends."""
    pid = os.fork()
    if pid == 0:
        os.close(report)
        return
    for stream in (0, 1, 2):
        os.close(stream)
    os.write(report, f"{pid}\n".encode())
    _, status = os.waitpid(pid, 0)
    os.write(report, f"{os.waitstatus_to_exitcode(status)}\n".encode())
    os._exit(0)


def take_place(asked: dict[str, Any], streams: list[int]) -> None:
    """Change to the directory, the environment and the streams of the command."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.environ.clear()
    os.environ.update(asked["env"])
    time.tzset()
    os.chdir(asked["cwd"])
    sys.argv = ["packager", *asked["arguments"]]
    sys.path[0] = asked["cwd"]  # as `python -m` has it


if __name__ == "__main__":
    for name in MODULES:
        importlib.import_module(name)
    read_tables()
    if serve(socket.socket(fileno=int(sys.argv[1]))) is not None:
        runpy.run_module("packager", run_name="__main__", alter_sys=True)

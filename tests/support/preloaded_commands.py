"""The command line in forks of a process that has its modules, which take most of a short command.

Run as `python -m tests.support.preloaded_commands SOCKET`.  A request is a JSON document on the
socket, with four descriptors: stdin, stdout and stderr of the command, and a pipe.  The pipe
takes the command's pid, and its status when it has ended.  A command is a process of its own,
with the directory, the environment and the arguments that were asked for; it ends as any program
does.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import inspect
import json
import os
import pkgutil
import runpy
import select
import socket
import sys
import threading
import time
from contextlib import suppress
from typing import Any, NoReturn

import artifact_cache
import packager
from artifact_cache.aws import aws_session
from packager.engines.rule_tables import engines_with_rules, rules
from tests.support.hidden_flags import hide_from_packager

LARGEST = 1_000_000  # bytes of a request

# What commands import, whichever they are: ours, and what they load when they first need it.
PACKAGES = (packager, artifact_cache)
LIBRARIES = ("boto3", "botocore.session", "docker", "jinja2", "s3transfer.manager", "tarfile")
# Read the environment when they are imported: that of the command, which is not ours.
NOT_BEFORE = ("packager.cli.doctor", "packager.cli.commands.doctor")
# Whose functions without arguments, where they are cached, read files that packager ships.
TABLES = ("architectures", "catalog", "checkpoints", "engines", "keys", "performance", "sizing")


def import_all() -> None:
    """Import every module but those that must not be."""
    for package in PACKAGES:
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not found.name.startswith(NOT_BEFORE) and not found.name.endswith("__main__"):
                importlib.import_module(found.name)
    for name in LIBRARIES:
        importlib.import_module(name)


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
    for engine in engines_with_rules():
        rules(engine)
    return count + len(engines_with_rules())


def complete_models() -> None:
    """Build the validators of documents, which a command builds when it first needs one."""
    from pydantic import BaseModel

    left: list[type[BaseModel]] = [BaseModel]
    while left:
        model = left.pop()
        left += model.__subclasses__()
        if model.__module__.startswith(("packager.", "artifact_cache.")):
            model.model_rebuild()


def read_services() -> None:
    """Read what botocore's files say of S3; which buckets, and whose, is asked by each command."""
    keys = {"aws_access_key_id": "none", "aws_secret_access_key": "none"}
    aws_session().client("s3", region_name="us-east-1", **keys)


def serve(requests: socket.socket) -> dict[str, Any] | None:
    """Fork for each request. Return it in the fork; None when the other end was closed."""
    gc.collect()
    gc.freeze()
    running: dict[int, tuple[int, int]] = {}  # descriptor of a command: its pid, its pipe
    while True:
        ready = select.select([requests, *running], [], [])[0]
        for command in running.keys() & ready:
            pid, report = running.pop(command)
            _, status = os.waitpid(pid, 0)
            tell(report, os.waitstatus_to_exitcode(status))
            os.close(report)
            os.close(command)
        if requests not in ready:
            continue
        data, descriptors, _, _ = socket.recv_fds(requests, LARGEST, 4)
        if not data:
            return None
        *streams, report = descriptors
        pid = os.fork()
        if pid == 0:
            commands = [one for command, (_, pipe) in running.items() for one in (command, pipe)]
            for other in (requests.detach(), report, *commands):
                os.close(other)
            asked: dict[str, Any] = json.loads(data)
            take_place(asked, streams)
            return asked
        for stream in streams:
            os.close(stream)
        tell(report, pid)
        running[os.pidfd_open(pid)] = (pid, report)


def tell(report: int, number: int) -> None:
    with suppress(BrokenPipeError):  # a test that failed waits for nothing
        os.write(report, f"{number}\n".encode())


def take_place(asked: dict[str, Any], streams: list[int]) -> None:
    """Change to the directory, the environment and the streams of the command."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.environ.clear()
    os.environ.update(asked["env"])
    time.tzset()
    os.chdir(asked["cwd"])
    hide_from_packager(asked["env"])
    sys.argv = ["packager", *asked["arguments"]]
    sys.path[0] = asked["cwd"]  # as `python -m` has it


def end(status: int) -> NoReturn:
    """End as Python does, but for taking its modules apart.

    That writes to nearly every page that is shared with the process that forks: half of the time
    of a short command.
    """
    threading._shutdown()
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError):
        sys.exit(status)  # Python says what is wrong
    os._exit(status)


if __name__ == "__main__":
    gc.disable()  # what is loaded stays
    import_all()
    read_tables()
    complete_models()
    read_services()
    gc.enable()
    if serve(socket.socket(fileno=int(sys.argv[1]))) is not None:
        try:
            runpy.run_module("packager", run_name="__main__", alter_sys=True)
        except SystemExit as asked_for:
            if isinstance(asked_for.code, int):
                end(asked_for.code)
            raise

"""Processes of one server share the modules that they load: a copy for each took most of a start.

vLLM starts its scheduler and its workers with `spawn`: an empty Python each, which loads PyTorch
and vLLM again, one after the other.  Here a process waits that has loaded them and done nothing
else: the fork server of Python's library, forked from the program.  Where vLLM spawns a process,
one is forked from it, and gets all that a spawned one gets: arguments, environment, directory,
descriptors.  The server has one thread, so nothing is lost by forking, and what modules keep in
memory is there once.

What was loaded depends on the environment at that time.  A process is forked only where its own
differs in nothing that may have been read by then; else it is spawned as ever.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
from collections.abc import Callable, Mapping
from multiprocessing import (
    connection,
    context,
    forkserver,
    popen_forkserver,
    resource_tracker,
    spawn,
)
from pathlib import Path
from typing import Any

# vLLM sets these for its processes, to these values, and PyTorch reads them when it is loaded.
AHEAD = {"TORCHINDUCTOR_COMPILE_THREADS": "1", "TORCHINDUCTOR_CPP_DYNAMIC_THREADS": "1"}

# vLLM sets these, too; what is loaded before that reads none of them.
READ_LATER = frozenset(
    {
        *("LOCAL_WORLD_SIZE", "NUMEXPR_MAX_THREADS", "VLLM_DISABLE_SHARED_EXPERTS_STREAM"),
        *("VLLM_SSM_CONV_STATE_LAYOUT", "VLLM_WORKER_MULTIPROC_METHOD", "AITER_SITUV2_A4W4"),
    }
)
PRELOAD = "LD_PRELOAD"  # vLLM adds PyTorch's own OpenMP, which PyTorch has loaded anyway


def may_share(loaded: Mapping[str, str], own: Mapping[str, str], openmp: Path) -> bool:
    """Check whether a process with the environment `own` may have modules loaded with another."""
    differing = {name for name in loaded.keys() | own.keys() if loaded.get(name) != own.get(name)}
    if PRELOAD not in loaded and own.get(PRELOAD) == str(openmp):
        differing.discard(PRELOAD)
    return differing <= READ_LATER


def share_modules(site_packages: Path, load_more: Callable[[], None]) -> None:
    """Start the process that others are forked from, and have `spawn` ask it from now on.

    To be called when this process has loaded its modules, with `AHEAD` in its environment, and
    has started nothing.  The server calls `load_more`, and ends after all who know of it.  Where
    it cannot be started, nothing changes.
    """
    loaded, openmp = dict(os.environ), site_packages / "torch/lib/libgomp.so.1"
    spawn_anew = context.SpawnProcess._Popen
    describe, prepare = spawn.get_preparation_data, spawn.prepare

    def start(process: Any) -> Any:
        if may_share(loaded, os.environ, openmp):
            with contextlib.suppress(OSError, EOFError):  # the server is gone
                return popen_forkserver.Popen(process)
        return spawn_anew(process)

    def describe_with_environment(name: str) -> dict[str, Any]:
        return {**describe(name), "environment": dict(os.environ)}

    def prepare_with_environment(data: dict[str, Any]) -> None:
        os.environ.clear()
        os.environ.update(data.pop("environment"))
        prepare(data)

    def install() -> None:
        context.SpawnProcess._Popen = staticmethod(start)
        spawn.get_preparation_data = describe_with_environment
        spawn.prepare = prepare_with_environment

    with contextlib.suppress(OSError):  # no directory for its socket, no process
        start_server(install, load_more)
        install()


def start_server(install: Callable[[], None], load_more: Callable[[], None]) -> None:
    """Fork the server, and tell the library that it runs and is not to be started again."""
    address = connection.arbitrary_address("AF_UNIX")  # in a directory of this user alone
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        Path(address).chmod(0o600)
        listener.listen()
        alive_r, alive_w = os.pipe()  # who may ask holds the end for writing; nobody writes
        server = forkserver._forkserver
        server.ensure_running = resource_tracker.ensure_running  # type: ignore[method-assign]
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        if os.fork() == 0:
            serve(listener.detach(), alive_r, alive_w, install, load_more)
    os.close(alive_r)
    server._forkserver_address = address
    server._forkserver_alive_fd = alive_w


def serve(
    listener: int,
    alive_r: int,
    alive_w: int,
    install: Callable[[], None],
    load_more: Callable[[], None],
) -> None:
    """Be the server; never return."""
    try:
        os.close(alive_w)
        install()  # for those who are forked, and start others
        load_more()
        forkserver.main(listener, alive_r, [])
    except Exception:
        sys.excepthook(*sys.exc_info())  # and vLLM spawns
    finally:
        os._exit(0)

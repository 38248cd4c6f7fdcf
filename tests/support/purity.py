"""The rule of `tests/unit`: no process, no socket, no sleep.

Python reports processes and sockets to audit hooks, whoever asks for them and whatever was
imported; of sleeping it does so from 3.13 on, so `time.sleep` is replaced as well.
"""

from __future__ import annotations

import functools
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest

FORBIDDEN = {
    "subprocess.Popen": "starts a process",
    "os.posix_spawn": "starts a process",
    "os.system": "starts a process",
    "os.exec": "starts a process",
    "os.fork": "starts a process",
    "os.forkpty": "starts a process",
    "socket.__new__": "opens a socket",
    "time.sleep": "sleeps",
}


@dataclass(frozen=True, slots=True)
class _Block:
    """A block of code that is watched."""

    strangers: frozenset[int | None]  # threads that were there before: servers of other tests
    seen: list[str] = field(default_factory=list)


_watched: list[_Block] = []


@contextmanager
def pure() -> Iterator[None]:
    """Fail what starts a process, opens a socket or sleeps in this block.

    It fails where it is tried, and once more at the end: a thread, or code that catches
    everything, must not hide it.
    """
    _install()
    here = threading.get_ident()
    block = _Block(frozenset(one.ident for one in threading.enumerate() if one.ident != here))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "sleep", functools.partial(_sleep, time.sleep))
        _watched.append(block)
        try:
            yield
        finally:
            _watched.remove(block)
    if block.seen:
        pytest.fail(_message(block.seen[0]), pytrace=False)


@functools.cache
def _install() -> None:
    """Add the hook, once a process: Python has no way to remove one."""
    sys.addaudithook(_refuse)


def _sleep(sleep: Callable[[float], None], seconds: float) -> None:
    _refuse("time.sleep", (seconds,))
    sleep(seconds)  # a thread of another test


def _refuse(event: str, arguments: tuple[object, ...]) -> None:
    if event not in FORBIDDEN or not _watched:
        return
    block = _watched[-1]
    if threading.get_ident() not in block.strangers and not _is_importing():
        block.seen.append(event)
        raise pytest.fail.Exception(_message(event))


def _is_importing() -> bool:
    """Return whether a module is being imported: urllib3 opens a socket then, to look for IPv6."""
    frame = sys._getframe()
    while frame := frame.f_back:  # type: ignore[assignment]
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            return True
    return False


def _message(event: str) -> str:
    return (
        f"a test in tests/unit {FORBIDDEN[event]} ({event}); "
        "hint: move it to the same room of tests/integration"
    )

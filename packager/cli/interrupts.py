"""Interrupts that are not lost: raises again what Python swallowed in a destructor or callback.

A signal's handler runs between any two steps of the main thread, also inside a destructor, a weak
reference's callback or a generator that is thrown away, and there Python drops every exception. It
reports most to `sys.unraisablehook`, but none of a file object that was not closed (CPython 3.11 to
3.14, `iobase_finalize`), and each answer of a server is one.
"""

from __future__ import annotations

import io
import signal
import sys
import time
from types import FrameType

_AGAIN_S = 0.01
_LONGEST_CLOSE_S = 1.0  # closing that takes longer is not a destructor
_CLOSING = frozenset({"close", "closed"})  # CPython's calls on a file object that is finalized

_deferred_since: float | None = None


def install() -> None:
    """Make SIGINT and SIGTERM raise `KeyboardInterrupt` in the main thread, wherever it is.

    SIGINT stays ignored where it is, as in a shell's background job.
    """
    signal.signal(signal.SIGALRM, interrupt)
    signal.signal(signal.SIGTERM, interrupt)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, interrupt)
    sys.unraisablehook = _raise_again


def interrupt(signum: int, frame: FrameType | None) -> None:  # noqa: ARG001
    """Raise `KeyboardInterrupt`, or do it a little later where it would be swallowed now."""
    global _deferred_since
    if _is_closing_file(frame):
        now = time.monotonic()
        _deferred_since = _deferred_since or now
        if now - _deferred_since < _LONGEST_CLOSE_S:
            _again()
            return
    _deferred_since = None
    raise KeyboardInterrupt


def _is_closing_file(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_name in _CLOSING:
            mine = frame.f_locals.get("self")
            if isinstance(mine, io.IOBase):
                return True
        frame = frame.f_back
    return False


def _raise_again(lost: sys.UnraisableHookArgs) -> None:
    if issubclass(lost.exc_type, KeyboardInterrupt):
        _again()
    else:
        sys.__unraisablehook__(lost)


def _again() -> None:
    signal.setitimer(signal.ITIMER_REAL, _AGAIN_S)

"""Asks the kernel for the tile registers of AMX when a Python process of an engine starts.

Linux kills a process with SIGILL that uses AMX without permission.  vLLM's attention for
processors uses it without asking: where no other library asked before, the first short
prompt ended the engine.  The permission is inherited by fork(2) and cleared by exec(3),
and an engine starts its workers with exec: so every process asks for itself.  Python
imports this module at each start because its directory is on PYTHONPATH.

Where there is no AMX the kernel refuses, and nothing else happens.  Nothing is printed,
and no start fails.  Another `sitecustomize`, which this one hides, is run after it.
"""

from __future__ import annotations

import os
import sys

ARCH_PRCTL = 158  # system call of x86-64; other machines have other numbers
ARCH_REQ_XCOMP_PERM = 0x1023
XTILEDATA = 18  # the state component of AMX's tiles


def request_tile_data() -> None:
    """Request permission to use AMX's tiles, on the one kind of machine that may have them."""
    if os.uname().machine != "x86_64" or sys.maxsize < 1 << 32:
        return
    try:
        import ctypes

        libc = ctypes.CDLL(None)
        libc.syscall(*map(ctypes.c_long, (ARCH_PRCTL, ARCH_REQ_XCOMP_PERM, XTILEDATA)))
    except Exception:
        return  # a start without AMX is better than none


def run_hidden() -> None:
    """Run the next `sitecustomize` on the path, as Python would without this one."""
    import importlib.machinery
    import importlib.util

    here = os.path.realpath(os.path.join(__file__, os.pardir))  # noqa: PTH118  (pathlib is slow)
    others = [place for place in sys.path if os.path.realpath(place) != here]
    found = importlib.machinery.PathFinder.find_spec("sitecustomize", others)
    if found is None or found.loader is None:
        return
    hidden = importlib.util.module_from_spec(found)
    sys.modules["sitecustomize"] = hidden
    found.loader.exec_module(hidden)


request_tile_data()
run_hidden()

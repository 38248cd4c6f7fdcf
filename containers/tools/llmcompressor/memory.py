"""How much memory there is, and how much of it weights may take."""

from __future__ import annotations

import ctypes
import gc
import os
from contextlib import suppress
from pathlib import Path

from llmcompressor.core import reset_session

TRIM_THRESHOLD, MMAP_THRESHOLD, MMAP_MAX, ARENA_MAX = -1, -3, -4, -8  # names of glibc's mallopt
NEVER, NONE, ONE = -1, 0, 1
SMALL = 32 << 20  # bytes: as much as glibc takes for small at most by itself
CGROUP_LIMITS = ("memory.max", "memory/memory.limit_in_bytes")


def weights_budget(needed: int, there_is: int) -> int:
    """Give 0 where all of it fits, else what weights may take: the rest stays on disk.

    A half is left to the libraries, one layer's work and the result.  Where weights
    lie changes no bit of the result, so this is no part of its key.
    """
    return 0 if needed <= there_is else there_is // 2


def memory_bytes() -> int:
    """The machine's memory, or less where a container limits it."""
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for name in CGROUP_LIMITS:
        with suppress(OSError, ValueError):  # "max" is no number
            limits.append(int((Path("/sys/fs/cgroup") / name).read_text()))
    return min(limits)


def reuse_freed_memory() -> None:
    """Have glibc keep what is freed for the next tensor, until `let_go`.

    A tensor of 32 MiB or more is otherwise mapped anew each time, and the kernel zeroes its pages
    one by one: half of the time that AWQ took, and the half that two threads shortened least.
    """
    # One heap: what one thread frees serves the others too.
    _tell_glibc((MMAP_MAX, NONE), (TRIM_THRESHOLD, NEVER), (ARENA_MAX, ONE))


def reuse_small_tensors() -> None:
    """Reuse the memory of freed tensors below 32 MiB, as glibc comes to do by itself.

    The executor has it map each of 1 MiB or more anew: in heaps of many threads nobody knows how
    much lies fallow. In one heap for all it serves the next tensor. GPTQ makes some of a few MiB
    for each column of a matrix; mapping these took a fifth of its time.
    """
    _tell_glibc((ARENA_MAX, ONE), (MMAP_THRESHOLD, SMALL), (TRIM_THRESHOLD, 2 * SMALL))


def let_go() -> None:
    """Free a model that was quantized: llm-compressor's session holds on to it."""
    reset_session()
    gc.collect()
    with suppress(OSError, AttributeError):  # glibc keeps what is freed
        ctypes.CDLL(None).malloc_trim(0)


def _tell_glibc(*settings: tuple[int, int]) -> None:
    """Set parameters of glibc's allocator; nothing where the C library is another."""
    with suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        for name, value in settings:
            mallopt(name, value)

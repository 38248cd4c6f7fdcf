"""Work on blocks of rows while a matrix is read: on all cores, in the order of the rows."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from typing import TypeVar

BLOCK_ELEMENTS = 1 << 18  # of a matrix at once: what is computed of them stays in the cores' caches

Rows = tuple[bytes, int]  # and how many they are
Block = TypeVar("Block")
Result = TypeVar("Result")


def cut_rows(chunks: Iterator[memoryview], width: int, count: int) -> Iterator[Rows]:
    """Cut bytes into blocks of `count` rows of `width` bytes; the last may have fewer."""
    size = width * count
    block = bytearray()
    for chunk in chunks:
        at = 0
        while at < len(chunk):
            taken = chunk[at : at + size - len(block)]
            block += taken
            at += len(taken)
            if len(block) == size:
                yield bytes(block), count
                block = bytearray()
    if block:
        yield bytes(block), len(block) // width


def run_in_order(work: Callable[[Block], Result], blocks: Iterator[Block]) -> Iterator[Result]:
    """Compute blocks on all cores, a few ahead; give the results in the order of the blocks."""
    pool, ahead = _pool()
    waiting: deque[Future[Result]] = deque()
    try:
        for block in blocks:
            waiting.append(pool.submit(work, block))
            if len(waiting) > ahead:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        for future in waiting:
            future.cancel()


@cache
def _pool() -> tuple[ThreadPoolExecutor, int]:
    """Return the threads of this process that compute, and how many blocks may wait for one."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    count = cores or 1
    return ThreadPoolExecutor(count, thread_name_prefix="rounding"), count

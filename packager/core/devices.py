"""GPUs for steps: how many a step can use, how many are requested, how many there are."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

GpuRequest = int | Literal["auto"] | None  # None is `auto`

SPREAD_OVER = 8  # GPUs at most, over which libraries spread one model
SMALL_BYTES = 1_000_000_000  # of weights, below which a processor is done before a GPU has begun
LARGE_HIDDEN = 2048  # hidden size from which several threads are faster than one
ONE_DEVICE_SHARE = 0.9  # of a GPU's memory; the rest is its driver's and its allocator's


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuUse:
    """The GPUs that a step can use, and the memory that it needs on them."""

    most: int = 0  # more would idle
    helps: bool = True  # False: a processor is as good, and `auto` takes that
    each_bytes: int = 0  # memory that it needs on one GPU, however many there are
    all_bytes: int = 0  # memory over which `auto` takes several; 0: one is enough


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpus:
    """The GPUs of the executor of steps."""

    count: int
    bytes: int = 0  # memory of the smallest; 0: not known


def gpus_in(capacity: Mapping[str, float]) -> Gpus | None:
    """Return the GPUs that an executor's capacity names; None where it is not known."""
    if "gpus" not in capacity:
        return None
    return Gpus(count=int(capacity["gpus"]), bytes=int(capacity.get("gpu_bytes", 0)))


def choose_gpus(wish: GpuRequest, use: GpuUse, there: Gpus | None) -> int:
    """Return how many GPUs a step gets.

    A number is taken as far as the step can use it.  `auto` takes what helps and is there:
    one GPU, or as many as hold the model together; none where one cannot hold its share.
    """
    if isinstance(wish, int):
        return min(wish, use.most)
    if there is None or not use.helps or is_too_small(use, there):
        return 0
    wanted = 1
    if there.bytes and use.all_bytes:
        wanted = math.ceil(use.all_bytes / (ONE_DEVICE_SHARE * there.bytes))
    return min(use.most, there.count, max(1, wanted))


def is_too_small(use: GpuUse, there: Gpus) -> bool:
    """Check whether one GPU lacks the memory that the step needs on each."""
    return 0 < ONE_DEVICE_SHARE * there.bytes < use.each_bytes


def choose_threads(wish: int | None, cores: float | None, *, is_large: bool) -> int:
    """Return how many threads of the processor a step computes with.

    Those of a small model mostly wait for each other: it gets one.  Of an executor that does
    not know its cores, one is taken, too.
    """
    if wish:
        return wish
    return max(1, int(cores)) if is_large and cores else 1

"""Findings about the GPUs that steps are to use."""

from __future__ import annotations

from collections.abc import Iterator

from packager.core.devices import GpuRequest, Gpus, GpuUse, choose_gpus, is_too_small
from packager.core.findings import Finding
from packager.core.units import gib


def check_gpu_request(wish: GpuRequest, there: Gpus | None) -> Iterator[Finding]:
    """Refuse a number of GPUs above that of the machine."""
    if isinstance(wish, int) and there is not None and wish > there.count:
        has = "there is none" if not there.count else f"there is {there.count}"
        hint = (
            f"use `--gpus {there.count}`, or run it where there are {wish}"
            if there.count
            else "use `--gpus 0` for the processor, or run it on a machine with NVIDIA GPUs"
        )
        yield Finding("error", "gpus-missing", f"{_count(wish)} requested, {has}", hint)


def check_gpu_use(
    step: str, wish: GpuRequest, use: GpuUse, there: Gpus | None
) -> Iterator[Finding]:
    """Compare the GPUs that a step can use with those it gets."""
    given = choose_gpus(wish, use, there)
    if isinstance(wish, int) and given < wish:
        message = f"{_count(wish)} requested; step {step!r} uses {given}"
        yield Finding("note", "gpus-idle", message, f"use `--gpus {given}`")
    if there is None or not there.count or not is_too_small(use, there):
        return
    message = (
        f"step {step!r} needs about {gib(use.each_bytes)} on a GPU, each has {gib(there.bytes)}"
    )
    if given:
        hint = "use `--gpus 0`, a machine with larger GPUs, or fewer and shorter texts"
        yield Finding("error", "gpu-too-small", message, hint)
    elif use.helps and wish in (None, "auto"):
        yield Finding("note", "gpu-too-small", message, "it runs on the processor")


def _count(number: int) -> str:
    return "1 GPU is" if number == 1 else f"{number} GPUs are"

"""Share of GPUs and threads that a step gets of an executor's."""

from __future__ import annotations

from packager.core.devices import GpuRequest, GpuUse, choose_gpus, choose_threads, gpus_in
from packager.core.errors import PlanRejected
from packager.optimize.steps.gpus import check_gpu_request
from packager.optimize.steps.services import StepServices


def refuse_missing_gpus(wish: GpuRequest, services: StepServices) -> None:
    """Raise `PlanRejected` where the executor has fewer GPUs than requested.

    Called before anything is downloaded. Where no step may run, nothing is refused: the cache may
    have results of a machine with GPUs.
    """
    if not wish or wish == "auto" or services.on_miss == "refuse":
        return
    if found := tuple(check_gpu_request(wish, gpus_in(services.executor.capacity()))):
        raise PlanRejected(found)


def gpus_for(wish: GpuRequest, use: GpuUse, services: StepServices) -> int:
    """Return how many GPUs a step gets."""
    asks = use.most and not isinstance(wish, int)  # a number was compared with it before
    return choose_gpus(wish, use, gpus_in(services.executor.capacity()) if asks else None)


def threads_for(wish: int | None, services: StepServices, *, is_large: bool) -> int:
    """Return how many threads a step computes with; cores are counted where they matter."""
    cores = services.executor.capacity().get("cpus") if is_large and not wish else None
    return choose_threads(wish, cores, is_large=is_large)

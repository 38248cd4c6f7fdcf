"""Where a step could run: the cheapest instance of the catalog that holds it."""

from __future__ import annotations

from collections.abc import Iterable

from packager.core.instance import LOCAL, Instance
from packager.core.recipe import Step
from packager.core.units import gib


def job_instance(step: Step, instances: Iterable[Instance]) -> str:
    """Name the instance and say why; "" where nothing is known or nothing holds it.

    Steps that ask for no GPU work in the host's memory.  Others need as many
    devices as they ask for, of NVIDIA, and of one model where the result is for it.
    Only instances with a price are compared.
    """
    needed = step.needs.memory_bytes
    holding = [
        one
        for one in instances
        if one.name != LOCAL
        and one.price_usd_hour is not None
        and one.host_bytes >= needed
        and (not step.gpus or (one.kind == "nvidia" and one.devices >= step.gpus))
        and step.gpu in ("", one.device_name)
    ]
    if not needed or not holding:
        return ""
    best = min(holding, key=lambda one: (one.price_usd_hour, one.name))
    devices = f" and {step.gpus} {step.gpu or 'GPUs'}" if step.gpus else ", no GPU is used"
    return (
        f"{best.name} (${best.price_usd_hour:.2f} an hour): the cheapest known with "
        f"{gib(needed)} of memory{devices}"
    )

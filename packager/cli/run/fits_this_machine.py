"""Checks whether a plan made for an instance can run on this machine."""

from __future__ import annotations

from packager.core.errors import UsageError
from packager.core.instance import LOCAL, Instance
from packager.core.units import gib

_KEPT_BACK = 0.92  # of the memory that a data sheet states, an operating system shows this much


def not_this_machine(instance: str, reason: str, build: str) -> UsageError:
    """Return an error: this machine lacks hardware that the plan needs."""
    return UsageError(
        f"a plan for {instance!r} cannot run on this machine: {reason}",
        hint=f"`{build}` builds the image for a registry, to be started there; "
        f"`--instance {LOCAL}`, the default, plans for this machine",
        code="NotThisMachine",
    )


def why_not_here(wanted: Instance, here: Instance) -> str:
    """Return the hardware that this machine lacks for a plan's instance; "" for none.

    A machine that has as much, or more, of the same kind runs the plan.
    """
    if wanted.name == LOCAL:
        return ""
    ours, theirs = _devices(here), _devices(wanted)
    if wanted.kind != here.kind or wanted.devices > here.devices:
        return f"that has {theirs}, this machine has {ours}"
    if wanted.machine and here.machine and wanted.machine != here.machine:
        return f"that has a processor of the kind {wanted.machine}, this machine {here.machine}"
    if here.device_bytes < wanted.device_bytes * _KEPT_BACK:
        return f"that has {theirs}, this machine has {ours}"
    needed, there = wanted.compute_capability, here.compute_capability
    if needed is not None and there is not None and there < needed:
        return f"that has compute capability {needed}, this machine {there}"
    return ""


def _devices(instance: Instance) -> str:
    if instance.kind == "cpu":
        return f"no accelerator and {gib(instance.device_bytes)} of memory"
    return f"{instance.devices} x {instance.device_name} with {gib(instance.device_bytes)} each"

"""Assigns the GPUs of this machine to the containers of its endpoints.

A copy of an inference component has its GPUs alone.  Containers of variants share what no component
has: an endpoint is updated beside itself, and one GPU has to be enough for that.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from packager.catalog.instances import find_instance
from packager.core.errors import PackagerError

_PROCESSOR_FAMILIES = ("c", "m", "r", "t")  # of AWS's instance types
DEVICES_LABEL = "dev.packager.endpoint.devices"  # `alone 0,1`, `shared 2,3`


def no_devices(wanted: int, free: int, of: int) -> PackagerError:
    """Return an error: fewer GPUs are free than a container needs."""
    return PackagerError(
        "There is not enough hardware resources on the instances to satisfy the request: "
        f"{wanted} accelerator devices are required, and {free} of {of} are free",
        hint="delete components or endpoints, or ask for fewer devices or copies",
        code="NoDevices",
    )


@dataclass(frozen=True, slots=True)
class Devices:
    """GPUs of one container, by their number on this machine."""

    numbers: tuple[int, ...]
    alone: bool

    def label(self) -> str:
        """Return the same as a label."""
        kind = "alone" if self.alone else "shared"
        return f"{kind} {','.join(map(str, self.numbers))}"


NO_DEVICES = Devices((), alone=False)


def has_devices(instance_type: str, *, gpus: int) -> bool:
    """Return whether this machine has a type's devices: that many NVIDIA GPUs, or CPUs only.

    Types outside the catalog count only if their family has no accelerators.
    """
    try:
        found = find_instance(instance_type)
    except PackagerError:
        family = instance_type.removeprefix("ml.")[:1]
        return family in _PROCESSOR_FAMILIES
    return found.kind == "cpu" or (found.kind == "nvidia" and found.devices <= gpus)


def read_devices(label: str) -> Devices:
    """Read a label; no devices for another format."""
    kind, _, listed = label.partition(" ")
    numbers = tuple(int(one) for one in listed.split(",") if one.isascii() and one.isdigit())
    return Devices(numbers if kind in ("alone", "shared") else (), kind == "alone")


def choose_devices(wanted: int | None, count: int, others: Iterable[Devices]) -> Devices:
    """Choose the GPUs of a new container among `count`; raises `PackagerError`.

    `wanted` is the number that it needs exclusively; None: it shares all that are not exclusive.
    """
    taken: set[int] = set()
    for other in others:
        if other.alone or wanted is not None:
            taken.update(other.numbers)
    free = tuple(number for number in range(count) if number not in taken)
    if len(free) < (1 if wanted is None else wanted):
        raise no_devices(1 if wanted is None else wanted, len(free), count)
    return Devices(free if wanted is None else free[:wanted], wanted is not None)

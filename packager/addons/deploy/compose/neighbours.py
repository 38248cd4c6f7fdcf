"""Other projects on this machine, and the devices that their servers have.

Docker gives one device to any number of containers: two engines on it run out of memory.
"""

from __future__ import annotations

from typing import Any

from packager.addons.deploy.compose.documents import GENERATIONS, LABEL, pool_of, server_services
from packager.addons.deploy.compose.spec import ComposeSpec
from packager.cli.run.containers import engine_errors
from packager.core.deployment import Deployment
from packager.core.errors import UsageError


def devices_taken(devices: list[str], project: str, free: list[str]) -> UsageError:
    """Return an error: servers of another project use requested devices."""
    hint = f"give --devices with others, such as --devices {','.join(free)}"
    return UsageError(
        f"device {', '.join(devices)} is of project {project!r}",
        hint=hint if free else f"end {project!r}, or give --devices with others",
        code="DevicesTaken",
    )


def refuse_taken(engine: Any, deployment: Deployment, wanted: ComposeSpec) -> None:
    """Raise `UsageError` if servers of another project run on a requested device."""
    mine: set[str] = set()
    for generation in GENERATIONS:
        for service in server_services(deployment, wanted, generation).values():
            mine |= _of_service(service)
    if not mine:
        return
    taken: dict[str, str] = {}
    with engine_errors():
        for one in engine.containers.list(filters={"label": LABEL}, ignore_removed=True):
            project = str(one.labels.get(LABEL))
            if project != deployment.name:
                taken |= dict.fromkeys(_of_container(one.attrs.get("HostConfig") or {}), project)
    both = sorted(mine & taken.keys())
    if both:
        free = [one for one in pool_of(deployment, wanted) if one not in taken]
        raise devices_taken(both, taken[both[0]], free)


def _of_service(service: Any) -> set[str]:
    reserved = service.get("deploy", {}).get("resources", {}).get("reservations", {})
    found = {one for each in reserved.get("devices", ()) for one in each.get("device_ids", ())}
    paths = (str(one).partition(":")[0] for one in service.get("devices", ()))
    return found | {path.removeprefix("/dev/neuron") for path in paths}


def _of_container(host: Any) -> set[str]:
    found = {
        one for each in host.get("DeviceRequests") or () for one in each.get("DeviceIDs") or ()
    }
    paths = (str(one.get("PathOnHost", "")) for one in host.get("Devices") or ())
    chips = {path.removeprefix("/dev/neuron") for path in paths if path.startswith("/dev/neuron")}
    return found | chips

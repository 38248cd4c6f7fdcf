"""The fleets that run a warm-up, by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from packager.cli.plugins.rows import Row, Table

if TYPE_CHECKING:
    from pathlib import Path

    from packager.core.warmup import Fleet

FleetRow: TypeAlias = "Row[[FleetContext], Fleet]"


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetContext:
    """Context of a fleet's factory."""

    plan: Path
    environment: Mapping[str, str]
    log_dir: Path
    address: str = ""  # of a cluster
    at_once: int | None = None
    options: Sequence[str] = ()


def _local_fleet(context: FleetContext) -> Fleet:
    from packager.addons.fleet.fleets.local import LocalFleet

    return LocalFleet(
        context.plan,
        environment=context.environment,
        log_dir=context.log_dir,
        at_once=context.at_once,
        options=context.options,
    )


def _ray_fleet(context: FleetContext) -> Fleet:
    from packager.addons.fleet.fleets.ray import RayFleet

    return RayFleet(
        context.plan,
        environment=context.environment,
        address=context.address,
        at_once=context.at_once,
        options=context.options,
    )


FLEETS: Table[FleetRow] = Table(
    "fleet",
    {
        "local": Row("processes on this machine", _local_fleet),
        "ray": Row("tasks of a Ray cluster", _ray_fleet),
    },
)

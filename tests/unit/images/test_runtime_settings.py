"""Run-time settings of an image: ours over its base's."""

from __future__ import annotations

from typing import Any

from packager.core.image import HealthCheck, RuntimeConfig
from packager.images.oci import merge_runtime
from tests.support.cases import cases, read_tables

BASE = read_tables(__file__)["base"]


@cases("merged", health=None, absent=())
def test_our_settings_join_or_replace_those_of_the_base(
    ours: dict[str, Any],
    health: HealthCheck | None,
    merged: dict[str, object],
    absent: tuple[str, ...],
) -> None:
    found = merge_runtime(BASE, RuntimeConfig(**ours, health=health))

    assert {name: found[name] for name in merged} == merged
    assert not {*absent} & {*found}

"""Node caches filled from a real Docker Engine and a real registry."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.live.building import build, told
from tests.support.commandline import Packager
from tests.support.real_registry import docker_registry

pytestmark = pytest.mark.live


def filled(packager: Packager, image: str, cache: str) -> dict[str, Any]:
    return told(packager, "node-cache", image, cache)


def entries(cache: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in cache.rglob("*.erofs")}


def test_an_engine_a_registry_and_a_layout_give_the_same_entries(
    packager: Packager, engine: str, tmp_path: Path
) -> None:
    with docker_registry(tmp_path) as host:
        name = f"{host}/node-cache:1"
        build(packager, "oci:out", "--output", "docker:node-cache:1", "--output", name)
        from_registry = filled(packager, name, "by-registry")
        from_engine = filled(packager, "docker:node-cache:1", "by-engine")
        from_layout = filled(packager, "oci:out", "by-layout")

    made = [[layer["state"] for layer in one["layers"]] for one in (from_registry, from_engine)]
    assert made == [["made"] * 5] * 2
    assert from_registry["bytes_read"] == from_layout["bytes_read"]
    assert entries(tmp_path / "by-registry") == entries(tmp_path / "by-layout")
    assert entries(tmp_path / "by-engine") == entries(tmp_path / "by-layout")

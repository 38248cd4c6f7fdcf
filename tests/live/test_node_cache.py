"""Node caches filled from a real Docker Engine and a real registry."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.commandline import TINY, Packager
from tests.support.real_registry import docker_registry

pytestmark = pytest.mark.live

BUILD = ("build", "--model", str(TINY), "--instance", "local", "--base", "scratch", "--quiet")


def filled(packager: Packager, image: str, cache: str) -> dict[str, Any]:
    done = packager("node-cache", image, cache, "--format", "json")
    assert done.status == 0, done.err
    report: dict[str, Any] = json.loads(done.out)
    return report


def entries(cache: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in cache.rglob("*.erofs")}


def test_an_engine_a_registry_and_a_layout_give_the_same_entries(
    packager: Packager, engine: str, tmp_path: Path
) -> None:
    with docker_registry(tmp_path) as host:
        name = f"{host}/node-cache:1"
        done = packager(
            *BUILD, "--output", "oci:out", "--output", "docker:node-cache:1", "--output", name
        )
        assert done.status == 0, done.err

        from_registry = filled(packager, name, "by-registry")
        from_engine = filled(packager, "docker:node-cache:1", "by-engine")
        from_layout = filled(packager, "oci:out", "by-layout")

    made = [[layer["state"] for layer in one["layers"]] for one in (from_registry, from_engine)]
    assert made == [["made"] * 5] * 2
    assert from_registry["bytes_read"] == from_layout["bytes_read"]
    assert entries(tmp_path / "by-registry") == entries(tmp_path / "by-layout")
    assert entries(tmp_path / "by-engine") == entries(tmp_path / "by-layout")

"""Lineage of an image in a real Docker Engine, and of copies between real registries."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.live.building import build, ran, told
from tests.support.commandline import Packager
from tests.support.real_registry import docker_registry

pytestmark = [pytest.mark.live, pytest.mark.timeout(600)]


@pytest.mark.capability("lineage")
def test_an_image_of_the_engine_is_known_by_its_digests(
    packager: Packager, engine: str, python_base: str
) -> None:
    name = "docker:packager-test-lineage:1"
    done = build(packager, name, base=f"docker:{python_base}")

    found = told(packager, "lineage", name)

    digest = done.out.strip().rpartition("@")[2]
    assert found["subjects"] == [f"image:{digest}"]
    assert {node["kind"] for node in found["nodes"]} >= {"model", "image"}


def test_a_record_travels_between_registries_without_lists(
    packager: Packager, tmp_path: Path
) -> None:
    elsewhere = {"XDG_STATE_HOME": str(tmp_path / "elsewhere")}
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    with docker_registry(tmp_path / "one") as one, docker_registry(tmp_path / "two") as two:
        built = build(packager, f"{one}/tiny:1")
        ran(packager, "copy", f"{one}/tiny:1", f"{two}/other/tiny:2", env=elsewhere)
        found = told(packager, "lineage", f"{two}/other/tiny:2", env=elsewhere)

    assert {node["kind"] for node in found["nodes"] if node["claimed"]} == {"model"}
    assert found["subjects"] == [f"image:{built.out.strip().rpartition('@')[2]}"]

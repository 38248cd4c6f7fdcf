"""Containers of endpoints in an Engine: which are ours, and what they are created with."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from packager.addons.server.endpoints.containers import (
    GENERATION_LABEL,
    OWNER_LABEL,
    SERVER_LABEL,
    Containers,
)
from packager.addons.server.endpoints.devices import DEVICES_LABEL, read_devices
from packager.addons.server.sagemaker.hosting import ServerSpec
from tests.support.cases import cases
from tests.support.doubles.docker_runs import FakeEngine
from tests.support.refusals import raises_code


def labels(state: Path) -> dict[str, str]:
    """Return the labels that a server of this state gives to its containers."""
    server = hashlib.sha256(str(state).encode()).hexdigest()[:16]
    return {SERVER_LABEL: server, OWNER_LABEL: "endpoint/e/v/0", GENERATION_LABEL: "ab"}


def containers(state: Path, engine: FakeEngine) -> Containers:
    return Containers(state, records=state, gpus=0, connect=lambda: engine)


def test_a_container_that_was_made_for_an_endpoint_is_found_again(tmp_path: Path) -> None:
    engine = FakeEngine()
    engine.add("packager-endpoint-e-v-0-ab", labels=labels(tmp_path))

    (found,) = containers(tmp_path, engine).all()

    assert (found.owner, found.generation, found.is_running) == ("endpoint/e/v/0", "ab", True)


def test_a_label_of_a_strangers_image_makes_no_container_ours(tmp_path: Path) -> None:
    """Nor is one of another server seen."""
    engine = FakeEngine()
    engine.add("users-own", labels=labels(tmp_path))
    engine.add("packager-endpoint-e-v-0-ab", labels=labels(tmp_path / "other"))

    assert containers(tmp_path, engine).all() == []


def devices_of(engine: FakeEngine) -> list[list[str]]:
    asked = [one.asked.get("device_requests", ()) for one in engine.there.values()]
    return [[number for one in wanted for number in one["DeviceIDs"]] for wanted in asked]


def take(step: dict[str, Any], state: Path, engine: FakeEngine, gpus: int) -> None:
    """Start, remove or end a container, or add one of a stranger, as a row of a table says."""
    place = state / step.get("server", "one")
    on = Containers(place, records=place, gpus=gpus, connect=lambda: engine)
    there = list(engine.there)
    if "remove" in step:
        on.remove(there[step["remove"]])
    elif "end" in step:
        engine.there[there[step["end"]]].status = "exited"  # it will be started again
    elif "stranger" in step:
        engine.add("users-own", labels={DEVICES_LABEL: step["stranger"]})
    else:
        spec = ServerSpec(image="tiny:1", environment={}, accelerators=step.get("gpus"))
        generation = step.get("generation", "ab")
        on.start(spec, owner=step["start"], generation=generation, folders={})


@cases("devices", refused={})
def test_a_component_has_gpus_of_its_own(
    tmp_path: Path,
    gpus: int,
    steps: list[dict[str, Any]],
    devices: list[list[str]],
    refused: dict[str, Any],
) -> None:
    engine = FakeEngine()
    engine.images_there["tiny:1"] = object()
    for step in steps:
        take(step, tmp_path, engine, gpus)
    if refused:
        with raises_code("NoDevices", match=refused["reason"]):
            take(refused, tmp_path, engine, gpus)

    assert devices_of(engine) == devices


@pytest.mark.parametrize("label", ["", "alone", "alone x,-1,²", "mine 0,1", "0,1"])
def test_a_label_that_says_nothing_of_gpus_takes_none(label: str) -> None:
    assert read_devices(label).numbers == ()

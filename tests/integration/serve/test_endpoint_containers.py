"""Containers of endpoints in an Engine: which are ours, and what they are created with."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from packager.sagemaker.hosting import ServerSpec
from packager.serve.endpoints.containers import (
    GENERATION_LABEL,
    OWNER_LABEL,
    SERVER_LABEL,
    Containers,
)
from packager.serve.endpoints.devices import DEVICES_LABEL, NoDevices, read_devices
from tests.support.doubles.docker_runs import FakeEngine


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
    engine = FakeEngine()
    engine.add("users-own", labels=labels(tmp_path))

    assert containers(tmp_path, engine).all() == []


def test_containers_of_another_server_are_not_seen(tmp_path: Path) -> None:
    engine = FakeEngine()
    engine.add("packager-endpoint-e-v-0-ab", labels=labels(tmp_path / "other"))

    assert containers(tmp_path, engine).all() == []


def devices_of(engine: FakeEngine) -> list[list[str]]:
    return [
        [
            number
            for wanted in one.asked.get("device_requests", ())
            for number in wanted["DeviceIDs"]
        ]
        for one in engine.there.values()
    ]


def machine(state: Path, engine: FakeEngine, gpus: int = 8) -> Containers:
    engine.images_there["tiny:1"] = object()
    return Containers(state, records=state, gpus=gpus, connect=lambda: engine)


def start(on: Containers, owner: str, accelerators: int | None, generation: str = "ab") -> None:
    spec = ServerSpec(image="tiny:1", environment={}, accelerators=accelerators)
    on.start(spec, owner=owner, generation=generation, folders={})


def test_components_have_gpus_of_their_own_on_a_machine_with_eight(tmp_path: Path) -> None:
    engine = FakeEngine()
    one, other = machine(tmp_path / "one", engine), machine(tmp_path / "other", engine)

    start(one, "component/a/v/0", 2)
    start(one, "component/a/v/1", 2)
    start(other, "component/b/v/0", 3)
    start(one, "component/c/v/0", 0)

    assert devices_of(engine) == [["0", "1"], ["2", "3"], ["4", "5", "6"], []]
    with pytest.raises(NoDevices, match="2 accelerator devices are required, and 1 of 8 are free"):
        start(other, "component/d/v/0", 2)
    assert len(engine.there) == 4


def test_gpus_of_a_component_that_was_removed_are_free_again(tmp_path: Path) -> None:
    engine = FakeEngine()
    on = machine(tmp_path, engine, gpus=2)
    start(on, "component/a/v/0", 1)
    start(on, "component/b/v/0", 1)
    on.remove(next(iter(engine.there)))

    start(on, "component/c/v/0", 1)

    assert devices_of(engine) == [["1"], ["0"]]


def test_variants_share_what_no_component_has(tmp_path: Path) -> None:
    engine = FakeEngine()
    on = machine(tmp_path, engine, gpus=4)
    start(on, "component/a/v/0", 3)

    start(on, "endpoint/e/v/0", None)
    start(on, "endpoint/e/v/0", None, generation="cd")  # its update, beside it

    assert devices_of(engine) == [["0", "1", "2"], ["3"], ["3"]]
    with pytest.raises(NoDevices):
        start(on, "component/b/v/0", 1)


def test_an_endpoint_without_any_gpu_left_is_not_started(tmp_path: Path) -> None:
    engine = FakeEngine()
    on = machine(tmp_path, engine, gpus=1)
    start(on, "component/a/v/0", 1)

    with pytest.raises(NoDevices, match="not enough hardware resources"):
        start(on, "endpoint/e/v/0", None)


def test_containers_that_ended_keep_their_gpus_and_strangers_have_none(tmp_path: Path) -> None:
    engine = FakeEngine()
    on = machine(tmp_path, engine, gpus=2)
    engine.add("users-own", labels={DEVICES_LABEL: "alone 0,1"})
    start(on, "component/a/v/0", 1)
    next(reversed(engine.there.values())).status = "exited"  # it will be started again

    start(on, "component/b/v/0", 1)

    assert devices_of(engine) == [[], ["0"], ["1"]]


def test_a_machine_without_gpus_gives_none(tmp_path: Path) -> None:
    engine = FakeEngine()

    start(machine(tmp_path, engine, gpus=0), "component/a/v/0", 4)

    assert devices_of(engine) == [[]]


@pytest.mark.parametrize("label", ["", "alone", "alone x,-1,²", "mine 0,1", "0,1"])
def test_a_label_that_says_nothing_of_gpus_takes_none(label: str) -> None:
    assert read_devices(label).numbers == ()

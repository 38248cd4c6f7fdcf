"""Containers of endpoints in an Engine: which are ours, and what they are created with."""

from __future__ import annotations

import hashlib
from pathlib import Path

from packager.serve.endpoints.containers import (
    GENERATION_LABEL,
    OWNER_LABEL,
    SERVER_LABEL,
    Containers,
)
from tests.support.doubles.docker_runs import FakeEngine


def labels(state: Path) -> dict[str, str]:
    """Return the labels that a server of this state gives to its containers."""
    server = hashlib.sha256(str(state).encode()).hexdigest()[:16]
    return {SERVER_LABEL: server, OWNER_LABEL: "endpoint/e/v/0", GENERATION_LABEL: "ab"}


def containers(state: Path, engine: FakeEngine) -> Containers:
    return Containers(state, records=state, gpus=False, connect=lambda: engine)


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

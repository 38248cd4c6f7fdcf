"""Builds on machines that share nothing but a hub and registries."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.commandline import Done, Packager
from tests.support.doubles.fake_hub import FakeHub
from tests.support.doubles.models import write_model
from tests.support.doubles.registry import FakeRegistry

BUILD = ("build", "--instance", "local", "--quiet", "--format", "json")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Three shards, each a layer of its own."""
    return write_model(tmp_path / "upstream", hidden_size=512, intermediate_size=1024)


@pytest.fixture
def hub(model: Path) -> Iterator[FakeHub]:
    with FakeHub() as served:
        served.add("acme/tiny", model)
        yield served


class Machines:
    """Each machine has a state directory and a key of its own, unless a key is shared."""

    def __init__(self, packager: Packager, hub: FakeHub, root: Path) -> None:
        self._packager, self._hub, self._root = packager, hub, root

    def environment(self, machine: str) -> dict[str, str]:
        return {
            "HF_ENDPOINT": self._hub.url,
            "HF_HOME": str(self._root / machine / "hf"),
            "XDG_STATE_HOME": str(self._root / machine / "state"),
            "XDG_CONFIG_HOME": str(self._root / machine / "config"),
        }

    def run(self, machine: str, *arguments: str, status: int = 0, **more: str) -> Done:
        done = self._packager(*arguments, env={**self.environment(machine), **more})
        assert done.status == status, done.err
        return done

    def build_with(self, machine: str, model: str, *arguments: str, **more: str) -> Done:
        """Build; the base is `scratch` unless another is named."""
        base = () if "--base" in arguments else ("--base", "scratch")
        return self.run(machine, *BUILD, "--model", model, *base, *arguments, **more)

    def build(self, machine: str, model: str, *arguments: str, **more: str) -> dict[str, Any]:
        """Build and return the record; `more` are variables of the environment."""
        done = self.build_with(machine, model, *arguments, **more)
        found: dict[str, Any] = json.loads(done.out)
        return found


@pytest.fixture
def machines(packager: Packager, hub: FakeHub, tmp_path: Path) -> Machines:
    return Machines(packager, hub, tmp_path)


def weights_of(record: dict[str, Any]) -> list[str]:
    """Digests of the layers of weights, in order."""
    return [layer["digest"] for layer in record["layers"] if layer["role"] == "weights"]


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    """A registry that lists what is attached."""
    with FakeRegistry(referrers=True) as fake:
        yield fake

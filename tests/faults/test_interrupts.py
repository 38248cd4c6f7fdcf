"""Ctrl-C while a registry is silent: the command ends soon, and nothing has a name."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tests.faults.killing import Machine
from tests.support.cases import cases
from tests.support.doubles.fault_proxy import Fault, FaultProxy
from tests.support.doubles.models import write_model
from tests.support.doubles.registry import FakeRegistry
from tests.support.running_jobs import until

SOON_S = 50.0  # a busy machine is slow; the time-outs that are met are 60 to 900 s


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(
        tmp_path_factory.mktemp("model"),
        shards=1,
        layers=4,
        hidden_size=512,
        intermediate_size=2048,
    )


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM], ids=lambda how: how.name)
@cases("faults")
def test_an_interrupt_ends_a_build_whose_registry_is_silent(
    machine: Machine, model: Path, how: signal.Signals, what: dict[str, Any]
) -> None:
    fault = Fault(**what)
    with FakeRegistry() as registry, FaultProxy(registry.host) as proxy:
        proxy.add(fault)
        process = machine.start(
            "build", "--model", str(model), "--instance", "local", "--base", "scratch",
            "--output", f"{proxy.host}/team/model:1",
        )  # fmt: skip
        until(lambda: bool(fault.hits or (fault.do == "delay" and fault.seen)), within_s=120)
        time.sleep(0.1)
        assert process.pid
        os.kill(process.pid, how)
        started = time.monotonic()
        process.join(SOON_S)

        assert process.exitcode == 130, (time.monotonic() - started, machine.err)
        assert "interrupted" in machine.err
        assert registry.tagged("team/model", "1") == ""

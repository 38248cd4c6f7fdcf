"""The command by which a container engine asks for health, run as the engine runs it."""

from __future__ import annotations

import pytest

from packager.pipeline.planning.health import health_check
from tests.support.doubles.json_server import json_server
from tests.support.engine_plans import plan_for
from tests.support.known import known
from tests.support.processes import run_python


def status_of_check(port: int) -> int:
    check = health_check(plan_for("vllm"), port)
    return run_python(*known(check).command[1:], status=None).returncode


@pytest.mark.parametrize(("status", "code"), [(200, 0), (503, 1), (404, 1)])
def test_only_a_server_that_says_200_is_healthy(status: int, code: int) -> None:
    with json_server({"/health": (status, {})}) as server:
        assert status_of_check(server.port) == code
    assert server.asked == [("/health", None)]


def test_where_nobody_listens_nothing_is_healthy() -> None:
    with json_server({}) as server:
        pass
    assert status_of_check(server.port) == 1

"""What each server does with running requests when it is told to stop."""

from __future__ import annotations

from dataclasses import replace

import pytest

from packager.cli.plugins.tables import FAMILIES
from packager.core.stopping import Stopping
from packager.engines.stopping import stopping_of
from tests.support.cases import cases
from tests.support.engine_plans import CONTAINERS
from tests.support.known import known


@cases("the_grace_period_covers_what_the_server_does")
def test_the_grace_period_covers_what_the_server_does(
    container: str, drain_s: int | None, grace_s: int
) -> None:
    facts = CONTAINERS[container]
    stopping = known(FAMILIES.find(facts.family).make().traits(facts).stopping)

    assert (stopping.drain_s, stopping.grace_s) == (drain_s, grace_s)
    assert stopping.source


def test_vllm_before_0_18_loses_running_requests() -> None:
    facts = replace(CONTAINERS["vllm"], engine_version="0.17.0")
    stopping = known(FAMILIES.find("vllm").make().traits(facts).stopping)

    assert stopping.drain_s == 0


@pytest.mark.parametrize("spelled", ["shutdown-timeout", "--shutdown_timeout", "Shutdown-Timeout"])
def test_an_option_of_the_engine_changes_the_grace_period(spelled: str) -> None:
    usual = Stopping(drain_s=25, option="shutdown-timeout")

    found = known(stopping_of(usual, {spelled: "60"}))

    assert (found.drain_s, found.grace_s) == (60, 65)
    assert stopping_of(usual, {spelled: "soon"}) == usual
    assert stopping_of(usual, {"seed": "60"}) == usual
    assert stopping_of(None, {spelled: "60"}) is None


def test_tgis_variable_changes_it_too() -> None:
    facts = CONTAINERS["tgi"]
    usual = FAMILIES.find("tgi").make().traits(facts).stopping

    found = known(stopping_of(usual, {"graceful-termination-timeout": "40"}))

    assert found.grace_s == 45

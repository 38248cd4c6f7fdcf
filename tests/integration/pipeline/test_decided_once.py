"""A build is decided once, and again only where its base or its files say something new."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from packager.cli.wiring.builds import services_for
from packager.cli.wiring.settings import settings_for
from packager.core.plan import Plan
from packager.core.request import parse_request
from packager.pipeline import planned
from packager.pipeline.pipeline import assemble
from tests.support.commandline import TINY


@pytest.fixture
def decisions(monkeypatch: pytest.MonkeyPatch) -> list[Plan]:
    made: list[Plan] = []
    make_plan = planned.make_plan

    def record(*given: Any) -> Plan:
        made.append(make_plan(*given))
        return made[-1]

    monkeypatch.setattr(planned, "make_plan", record)
    return made


def assemble_image(place: Path, **given: Any) -> None:
    """Run the line up to an image, without a step."""
    fields = {"model": str(TINY), "instance": "ml.g5.xlarge", "base": "scratch"}
    request = parse_request({**fields, "outputs": (f"oci:{place / 'image'}",), **given})
    settings = replace(settings_for(request), headers_only=True, environment={"HOME": str(place)})
    assemble(request, services_for(settings))


def test_a_build_is_decided_once(tmp_path: Path, decisions: list[Plan]) -> None:
    assemble_image(tmp_path)

    assert len(decisions) == 1


def test_a_compiler_that_the_base_rules_out_is_chosen_anew(
    tmp_path: Path, decisions: list[Plan]
) -> None:
    """`scratch` has no engine that could compile: seen when the base is there."""
    assemble_image(tmp_path, compile="auto")

    assert [plan.compiler for plan in decisions] == ["vllm_cache", ""]

"""A build is decided once, and again only where its base or its files say something new."""

from __future__ import annotations

from pathlib import Path

import pytest

from packager.core.plan import Plan
from packager.pipeline import planned
from tests.support.commandline import TINY, Packager

INSTANCE = ("--instance", "ml.g5.xlarge")


@pytest.fixture
def decisions(monkeypatch: pytest.MonkeyPatch) -> list[Plan]:
    made: list[Plan] = []
    make_plan = planned.make_plan
    monkeypatch.setattr(
        planned, "make_plan", lambda *given: made.append(found := make_plan(*given)) or found
    )
    return made


def build(packager: Packager, place: Path, *options: str, status: int = 0) -> None:
    output = ("--output", f"oci:{place / 'image'}", "--base", "scratch")
    packager("build", "--model", str(TINY), *INSTANCE, *output, *options, status=status)


def test_a_build_is_decided_once(packager: Packager, tmp_path: Path, decisions: list[Plan]) -> None:
    build(packager, tmp_path)

    assert len(decisions) == 1


def test_a_compiler_that_the_base_rules_out_is_chosen_anew(
    packager: Packager, tmp_path: Path, decisions: list[Plan]
) -> None:
    """`scratch` has no engine that could compile: seen when the base is there."""
    build(packager, tmp_path, "--compile", "auto", "--dry-run")

    assert [plan.compiler for plan in decisions] == ["vllm_cache", ""]

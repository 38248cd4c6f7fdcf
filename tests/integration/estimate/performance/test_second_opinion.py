"""`packager plan --second-opinion`: what is shown, what is refused, and that the plan stays."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from packager.cli.app import app
from packager.core.errors import StepFailed
from packager.core.recipe import Step, StepResult
from tests.support.commandline import TINY, Packager
from tests.support.told_executor import ToldExecutor

PLAN = ("plan", "--model", str(TINY), "--instance", "ml.p5.4xlarge")


def answer(step: Step) -> StepResult:
    """Give every concurrency the same times."""
    times = {"tpot_s": 0.005, "ttft_s": 0.03, "output_tokens_s": 200.0}
    points = [{"concurrency": one["concurrency"], **times} for one in step.parameters["points"]]
    return StepResult(
        details={"points": points, "engine_version": "0.24.0", "modes": {"gemm": "bfloat16"}},
        versions={"aiconfigurator": "0.12.0"},
    )


def break_off(step: Step) -> StepResult:
    raise StepFailed("step 'second-opinion' ended with status 1", log="the end of it")


def plan(*more: str) -> dict[str, Any]:
    """Run the command in this process; return its document."""
    result = CliRunner().invoke(app, [*PLAN, "--format", "json", *more], catch_exceptions=False)
    return dict(json.loads(result.stdout))


def test_the_opinion_stands_beside_an_unchanged_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "packager.cli.wiring.opinions.opinion_executor", lambda settings: ToldExecutor(answer)
    )
    plain = plan()

    asked = plan("--second-opinion")

    opinion = asked.pop("second_opinion")
    assert plain.pop("second_opinion") is None
    assert asked == plain
    assert (opinion["source"], opinion["engine"]) == ("aiconfigurator 0.12.0", "vllm 0.24.0")
    first = opinion["points"][0]
    ours = plain["predicted"]["points"][0]["tpot_s"]
    assert (first["concurrency"], first["tpot_s"]) == (1, 0.005)
    assert first["ratios"]["tpot"] == pytest.approx(0.005 / ours)


def test_a_tool_that_breaks_ends_it_as_a_failed_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "packager.cli.wiring.opinions.opinion_executor", lambda settings: ToldExecutor(break_off)
    )

    with pytest.raises(StepFailed, match="ended with status 1"):
        plan("--second-opinion")


def test_a_tool_that_is_not_installed_is_named_with_its_command(
    packager: Packager, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PACKAGER_TOOLS", str(tmp_path / "tools"))

    done = packager(*PLAN, "--second-opinion", status=69)

    assert "packager tools install aiconfigurator" in done.err
    assert done.out == ""
    assert not (tmp_path / "tools").exists()


@pytest.mark.parametrize("flag", ["--second-opinion", "--goals"])
def test_what_is_about_one_plan_is_refused_of_several(flag: str, packager: Packager) -> None:
    done = packager("plan", "--model", str(TINY), "--instance", "all", flag, status=2)

    assert f"{flag} applies to one plan" in done.err


def test_goals_are_tried_where_they_are_asked_for() -> None:
    assert plan()["to_try"] is None
    assert [row["goal"] for row in plan("--goals")["to_try"]] == ["cost", "latency", "throughput"]


RANK = ("plan", "--model", str(TINY), "--instance", "ml.g5.*2xlarge", "--measured")


@pytest.mark.parametrize("options", [("--quantize", "none"), ("--quantize", "auto")])
def test_a_measured_point_corrects_every_plan_that_it_tells_of(
    options: tuple[str, ...], packager: Packager
) -> None:
    """It says no quantization: plans that add one are not corrected by it."""
    words = "TPOT 9 ms at 8, ml.g5.12xlarge"
    done = packager(*RANK, words, *options, "--format", "json")

    rows = json.loads(done.out)["options"]
    assert {row["instance"] for row in rows} >= {"ml.g5.2xlarge", "ml.g5.12xlarge"}
    for row in rows:
        told = "\n".join(row["assumptions"])
        assert ("fitted to 1 measured point" in told) == (row["precision"] == "bf16")
        assert ("not corrected: " in told) == (row["precision"] != "bf16")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("TPOT 9 ms at 8", "does not say on which instance it was measured"),
        ("TPOT 9 ms at 8, 8xMI300X", "--measured applies to none of the"),
    ],
)
def test_a_point_that_tells_of_no_plan_is_refused(
    words: str, told: str, packager: Packager
) -> None:
    assert told in packager(*RANK, words, status=2).err

"""Choices of a page, their quality and their commands; where a page comes from."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from packager.cli.wiring.builds import parse_model_reference
from packager.core.model import ModelRef
from packager.core.plan import Plan
from packager.core.request import BuildRequest
from packager.core.techniques import Quantization
from packager.estimate.performance.presets import Candidate
from packager.estimate.performance.ranking import RankedInstance, rank
from packager.pipeline.choices import plan_choices, quality_words, ranking_choices
from packager.pipeline.report_plan import PlanPage
from packager.pipeline.trace import (
    build_command,
    changed_command,
    make_trace,
    model_identity,
    name_of,
)
from tests.support.cases import cases
from tests.support.headers import facts_of
from tests.support.report_values import LLAMA_8B, option_on, outlook_of, plan_on, quality_report

COMMIT = "0123456789abcdef0123456789abcdef01234567"
HUB = BuildRequest(model="meta-llama/Meta-Llama-3-8B-Instruct", instance="ml.g5.xlarge")
PLAN = plan_on("ml.g5.xlarge")
AWQ = plan_on("ml.g5.xlarge", quantize="awq")
ARRIVED = Quantization(method="awq", scheme="w4a16", bits=4, existing=True)
PINNED = replace(LLAMA_8B.ref, revision=COMMIT)


def option(plan: Plan, **changes: Any) -> RankedInstance:
    made = option_on("ml.g5.xlarge", "cost")
    candidate = Candidate(request=facts_of(LLAMA_8B, "ml.g5.xlarge").request, changes=changes)
    return replace(made, plan=plan, candidate=candidate)


def test_a_choice_that_is_the_plan_itself_is_named_once() -> None:
    menu = (("cost", option(PLAN)), ("latency", option(AWQ, quantize="awq")))
    page = PlanPage(plan=PLAN, outlook=outlook_of(PLAN), menu=(*menu, ("throughput", menu[0][1])))

    asked, fast = plan_choices(page, HUB)

    assert asked.title == "As asked, fewest dollars per token, most tokens per second"
    assert "--quantize" not in asked.command
    assert fast.title == "Fastest for one reader"
    assert fast.command.endswith(
        "--output oci:meta-llama-3-8b-instruct-ml.g5.xlarge --quantize awq"
    )
    assert fast.monthly is not None


def test_choices_of_a_ranking_are_the_goals_best_the_lowest_bill_and_the_fastest() -> None:
    names = ("ml.g5.xlarge", "ml.g5.12xlarge", "ml.p5.48xlarge")
    choices = ranking_choices(rank([option_on(name, "cost") for name in names], [], "cost"), HUB)

    assert {choice.plan.instance.name: choice.title for choice in choices} == {
        "ml.p5.48xlarge": "Fewest dollars per token, fastest for one reader",
        "ml.g5.xlarge": "Lowest bill a month",
    }


def test_among_instances_as_fast_the_cheaper_is_the_fastest() -> None:
    quick, hardly_quicker = option_on("ml.g5.xlarge", "cost"), option_on("ml.g5.2xlarge", "cost")
    points = [replace(point, tpot_s=point.tpot_s / 1.04) for point in quick.prediction.points]
    prediction = replace(quick.prediction, points=tuple(points))
    ranking = rank([quick, replace(hardly_quicker, prediction=prediction)], [], "throughput")

    fastest = [
        choice.plan.instance.name
        for choice in ranking_choices(ranking, HUB)
        if "Fastest for one reader" in choice.titles
    ]

    assert fastest == ["ml.g5.xlarge"]


def test_a_ranking_of_nothing_has_no_choices() -> None:
    assert ranking_choices(rank([], [], "cost"), HUB) == ()


PLANS = {
    "as is": PLAN,
    "quantized": AWQ,
    "arrived": replace(PLAN, quantization=ARRIVED),
    "cache": replace(PLAN, kv_dtype="fp8"),
}


@cases("quality_is_unknown_until_it_is_measured", asked={})
def test_quality_is_unknown_until_it_is_measured(
    plan: str, asked: dict[str, Any], words: str, is_known: bool
) -> None:
    assert quality_words(PLANS[plan], HUB.model_copy(update=asked)) == (words, is_known)


def test_a_measured_quality_is_shown_with_its_figure() -> None:
    words, is_known = quality_words(AWQ, HUB, quality_report())

    assert is_known
    assert words.startswith("measured, of the same weights: PPL 6.020 -> 6.110")


def test_a_command_names_the_revision_that_was_planned() -> None:
    plan = replace(PLAN, model=PINNED)

    command = build_command(HUB.model_copy(update={"model": f"{HUB.model}@main"}), plan, {})

    assert f"--model {HUB.model}@{COMMIT} " in command


def test_a_command_keeps_the_places_that_were_asked_for() -> None:
    asked = HUB.model_copy(update={"outputs": ("registry/a:b",), "base": "docker:x"})

    assert "--base docker:x --output registry/a:b" in build_command(asked, PLAN, {})


def test_no_command_builds_for_several_machines() -> None:
    assert build_command(HUB, replace(PLAN, nodes=2), {}) == ""


@cases("a_name_becomes_a_harmless_place")
def test_a_name_becomes_a_harmless_place(name: str, place: str) -> None:
    command = build_command(HUB, replace(PLAN, served_name=name), {})

    assert f"--output oci:{place}-ml.g5.xlarge" in command


def test_a_suggestion_replaces_what_was_asked_for() -> None:
    asked = HUB.model_copy(
        update={"tp_degree": 3, "draft": "ngram", "speculative_tokens": 4, "outputs": ("oci:x",)}
    )

    assert changed_command(asked, "--tp-degree 2 --draft none ") == (
        f"packager plan --model {HUB.model} --instance ml.g5.xlarge --tp-degree 2 --draft none"
    )


def test_a_page_is_traced_by_revision_or_by_what_was_read() -> None:
    made = datetime(2026, 9, 1, 12, 30, tzinfo=UTC)
    pinned = make_trace(HUB, replace(LLAMA_8B, ref=PINNED), made=made, packager="1.2.3")
    local = replace(LLAMA_8B, ref=ModelRef(source="local", name="model"))
    asked = HUB.model_copy(update={"model": "/home/me/mine"})
    here = make_trace(asked, local, made=made, packager="1", others=("--discount", "0.2"))

    assert (pinned.model, pinned.identity) == (f"{HUB.model}@{COMMIT}", f"revision {COMMIT}")
    assert pinned.made_words == "2026-09-01 12:30 UTC"
    assert here.model == "mine"
    assert here.identity.startswith("sha256:")
    assert here.command == (
        "packager plan --model /home/me/mine --instance ml.g5.xlarge --discount 0.2 --format html"
    )
    other = replace(local, config={**local.config, "rope_theta": 1})
    assert model_identity(other) != model_identity(local)
    assert model_identity(replace(local, tensors=local.tensors[:-1])) != model_identity(local)


@cases("a_model_that_was_not_read_has_its_own_name")
def test_a_model_that_was_not_read_has_its_own_name(model: str, name: str) -> None:
    assert name_of(HUB.model_copy(update={"model": model}), parse_model_reference(model)) == name


def test_choices_of_the_same_weights_share_their_measured_quality() -> None:
    menu = (("cost", option(replace(AWQ, tp_degree=1, dp_degree=1, workers=2), goal="cost")),)
    page = PlanPage(plan=AWQ, outlook=outlook_of(AWQ), menu=menu)

    choices = plan_choices(page, HUB, quality_report())

    assert [choice.is_quality_known for choice in choices] == [True, True]

"""Several machines, where one does not hold the model."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from packager.cli.plugins.tables import FAMILIES
from packager.core.errors import PlanRejected
from packager.core.facts import Facts
from packager.core.findings import LACKS, MEMORY, Finding, errors_in
from packager.core.plan import Plan
from packager.core.split import Split
from packager.estimate.sizing.nodes import refuse_unasked_nodes
from packager.pipeline.planning.planner import make_plan
from packager.pipeline.planning.services import PlannerServices
from packager.pipeline.planning.suggestions import plan_on_nodes
from packager.pipeline.report_plan import plan_document, spread_words
from tests.support import zoo
from tests.support.cases import cases_of
from tests.support.headers import LLAMA_3_70B, facts_of, model_of
from tests.support.known import known

cases = cases_of(__file__)

LLAMA_405B = model_of(zoo.LLAMA_3_1_405B)  # 811 GB in 16 bits: one p5.48xlarge has 640


def plan_of(instance: str, *, family: str = "vllm", **asked: Any) -> Plan:
    model = asked.pop("model", LLAMA_405B)
    return make_plan(
        facts_of(model, instance, family=family, **asked),
        PlannerServices(family=FAMILIES.find(family).make()),
    )


def with_traits(facts: Facts) -> Facts:
    traits = FAMILIES.find(facts.container.family).make().traits(facts.container)
    return replace(facts, container=replace(facts.container, traits=traits))


def messages(plan: Plan, code: str) -> list[str]:
    return [finding.message for finding in plan.findings if finding.code == code]


@cases("405b_in_16_bits_is_planned_on_two_p5")
def test_405b_in_16_bits_is_planned_on_two_p5(family: str, starts: str) -> None:
    plan = plan_of("ml.p5.48xlarge", family=family)
    (message,) = messages(plan, "several-nodes")

    assert plan.split.nodes == 2
    assert plan.split.devices == 16
    assert plan.split.tp_degree <= 8
    assert plan.split.pp_degree % 2 == 0
    assert message.startswith("2 x ml.p5.48xlarge hold the model together: TP ")
    assert starts.strip("`") in message


def test_all_machines_are_paid_for_and_named() -> None:
    plan = plan_of("ml.p5.48xlarge")
    one_hour = known(plan.instance.price_usd_hour)

    assert plan.usd_hour == 2 * one_hour
    assert spread_words(plan).startswith("16 devices: TP ")
    assert spread_words(plan).endswith(", 2 nodes")
    assert plan_document(plan)["split"]["nodes"] == 2


@cases("refused", asked={})
def test_what_one_machine_cannot_hold_and_several_may_not_is_refused(
    instance: str, asked: dict[str, Any], code: str
) -> None:
    with pytest.raises(PlanRejected) as refused:
        plan_of(instance, **asked)

    assert [found.code for found in errors_in(refused.value.findings)] == [code]


def test_what_fits_one_machine_is_planned_on_one() -> None:
    plan = plan_of("ml.p5.48xlarge", model=model_of(LLAMA_3_70B))

    assert plan.nodes == 1
    assert messages(plan, "several-nodes") == []


def test_machines_that_were_asked_for_are_used_and_a_slow_network_is_said() -> None:
    plan = plan_of("ml.g5.48xlarge", model=model_of(LLAMA_3_70B), nodes=2)

    assert plan.nodes == 2
    assert plan.split.devices == 16
    assert messages(plan, "nodes-network") == [
        "the network between machines of ml.g5.48xlarge has 100 Gbit/s"
    ]


def test_an_image_for_several_machines_is_built_where_they_were_asked_for() -> None:
    plan = plan_of("ml.p5.48xlarge")

    with pytest.raises(PlanRejected, match="built where they are asked for") as refused:
        refuse_unasked_nodes(plan, None)
    assert "give --nodes 2" in refused.value.findings[0].hint
    refuse_unasked_nodes(plan, 2)
    refuse_unasked_nodes(plan_of("ml.p5.48xlarge", model=model_of(LLAMA_3_70B)), None)


def test_the_layout_over_nodes_keeps_tensor_parallelism_inside_a_machine() -> None:
    split = plan_of("ml.p5.48xlarge", tp_degree=8, max_batch=8, max_total_tokens=8192).split

    assert split == Split(tp_degree=8, pp_degree=2, nodes=2)


def test_what_more_devices_do_not_cure_is_not_tried_again() -> None:
    def decide(_: Facts) -> Plan:
        raise AssertionError("tried again")

    facts = with_traits(facts_of(LLAMA_405B, "ml.p5.48xlarge", family="vllm"))
    refused = PlanRejected(
        (
            Finding("error", "does-not-fit", "too large", data={LACKS: MEMORY}),
            Finding("error", "served-name", "odd"),
        )
    )

    assert plan_on_nodes(facts, refused, decide) is None


def test_what_more_devices_cure_is_tried_whatever_its_message_says() -> None:
    tried: list[int | None] = []

    def decide(changed: Facts) -> Plan:
        tried.append(changed.request.nodes)
        raise refused

    facts = with_traits(facts_of(LLAMA_405B, "ml.p5.48xlarge", family="vllm"))
    refused = PlanRejected((Finding("error", "renamed", "reworded", data={LACKS: MEMORY}),))

    assert plan_on_nodes(facts, refused, decide) is None
    assert tried

"""What each family makes of a layout, and engine options that would change it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from packager.core.artifact import Artifacts
from packager.core.plan import Plan
from packager.core.serving import ServingConfig
from packager.plugins.tables import FAMILIES
from packager.ports import ContainerFamily
from tests.support.engine_plans import MIXTRAL, plan_for

NO_ARTIFACTS = Artifacts(model=())
COPIES: dict[str, Any] = {"tp_degree": 1, "dp_degree": 4}
SHARED: dict[str, Any] = {
    "tp_degree": 2,
    "dp_degree": 2,
    "dp_attention": True,
    "expert_parallel": True,
    "profile": replace(MIXTRAL, experts=8, experts_per_token=2, expert_size=14336),
}


def family_of(plan: Plan) -> ContainerFamily:
    family: ContainerFamily = FAMILIES.find(plan.container.family).make()
    return family


def rendered(plan: Plan) -> ServingConfig:
    return family_of(plan).render(plan, NO_ARTIFACTS)


def told(plan: Plan) -> dict[str, str]:
    """The environment without what every image has."""
    return dict(rendered(plan).env)


def errors(plan: Plan) -> list[tuple[str, str]]:
    found = family_of(plan).check(plan)
    return [(one.message, one.hint) for one in found if one.severity == "error"]


def chosen(env: dict[str, str], *names: str) -> list[str | None]:
    return [env.get(name) for name in names]


VLLM = (
    "SM_VLLM_TENSOR_PARALLEL_SIZE",
    "SM_VLLM_DATA_PARALLEL_SIZE",
    "SM_VLLM_ENABLE_EXPERT_PARALLEL",
    "SM_VLLM_MAX_NUM_SEQS",
)
SGLANG = (
    "SM_SGLANG_TP_SIZE",
    "SM_SGLANG_DP_SIZE",
    "SM_SGLANG_ENABLE_DP_ATTENTION",
    "SM_SGLANG_EP_SIZE",
    "SM_SGLANG_MAX_RUNNING_REQUESTS",
)


def test_vllm_counts_sequences_for_each_copy() -> None:
    """Each rank is an engine with a scheduler of its own: vllm/v1/engine/core.py."""
    assert chosen(told(plan_for("vllm")), *VLLM) == ["4", None, None, "16"]
    assert chosen(told(plan_for("vllm", **COPIES)), *VLLM) == ["1", "4", None, "16"]
    assert chosen(told(plan_for("vllm", **SHARED)), *VLLM) == ["2", "2", "true", "16"]


def test_vllm_takes_the_same_on_its_command_line() -> None:
    (file,) = [
        one
        for one in rendered(plan_for("vllm-upstream", **SHARED)).files
        if one.path.endswith("command.json")
    ]

    assert b'"--tensor-parallel-size","2"' in file.data
    assert b'"--data-parallel-size","2","--enable-expert-parallel"' in file.data
    assert b'"--max-num-seqs","16"' in file.data


def test_sglang_counts_devices_and_requests_of_one_copy_of_the_experts() -> None:
    """Plain copies have `tp-size` devices each; copies of attention lie inside `tp-size`."""
    assert chosen(told(plan_for("sglang")), *SGLANG) == ["4", None, None, None, "16"]
    assert chosen(told(plan_for("sglang", **COPIES)), *SGLANG) == ["1", "4", None, None, "16"]
    assert chosen(told(plan_for("sglang", **SHARED)), *SGLANG) == ["4", "2", "true", "4", "32"]


def test_sglang_divides_a_step_among_copies_of_attention() -> None:
    plain, shared = (
        told(plan_for("sglang", max_prefill_tokens=2048, **layout)) for layout in (COPIES, SHARED)
    )

    assert plain["SM_SGLANG_CHUNKED_PREFILL_SIZE"] == "2048"
    assert shared["SM_SGLANG_CHUNKED_PREFILL_SIZE"] == "4096"


def test_lmi_names_the_degree_alone_and_starts_its_own_workers() -> None:
    plan = plan_for("lmi", tp_degree=2, workers=2, expert_parallel=True)
    env = told(plan)

    assert env["OPTION_TENSOR_PARALLEL_DEGREE"] == "2"
    assert env["OPTION_ENABLE_EXPERT_PARALLEL"] == "true"
    assert env["OPTION_MAX_ROLLING_BATCH_SIZE"] == "16"
    assert not any("DATA_PARALLEL" in name for name in env)


@pytest.mark.parametrize("container", ["vllm", "vllm-upstream", "sglang"])
@pytest.mark.parametrize("layout", [COPIES, SHARED], ids=["copies", "shared experts"])
def test_the_options_of_a_layout_are_known_to_the_engine(
    container: str, layout: dict[str, Any]
) -> None:
    assert errors(plan_for(container, **layout)) == []


@pytest.mark.parametrize(
    ("container", "option", "instead"),
    [
        ("vllm", "data-parallel-size", "use --dp-degree"),
        ("vllm", "--data_parallel_size", "use --dp-degree"),
        ("vllm", "pipeline-parallel-size", "use --pp-degree"),
        ("vllm", "enable-expert-parallel", "use --ep"),
        ("vllm", "nnodes", "use --nodes, which plans with several machines"),
        ("vllm-upstream", "data-parallel-size", "use --dp-degree"),
        ("sglang", "dp-size", "use --dp-degree"),
        ("sglang", "data-parallel-size", "use --dp-degree"),
        ("sglang", "enable-dp-attention", "use --dp-degree"),
        ("sglang", "ep-size", "use --ep"),
        (
            "lmi",
            "option.data_parallel_size",
            "use --tp-degree: LMI starts a server on each group of devices",
        ),
        ("lmi", "enable-expert-parallel", "use --ep"),
    ],
)
def test_an_engine_option_that_changes_the_layout_is_refused(
    container: str, option: str, instead: str
) -> None:
    """`--engine-option data-parallel-size=4` was accepted, and the plan said 6 of 8 idle."""
    value = "true" if "enable" in option else "4"
    plan = plan_for(container, engine_options=((option, value),))

    assert (f"{option!r} decides which devices are used, which the plan does", instead) in errors(
        plan
    )


def test_options_beside_the_layout_are_left_to_the_user() -> None:
    plan = plan_for("vllm", engine_options=(("data-parallel-backend", "mp"),), **COPIES)

    assert errors(plan) == []
    assert told(plan)["SM_VLLM_DATA_PARALLEL_BACKEND"] == "mp"


@pytest.mark.parametrize("option", ["enable_lora", "option.enable_stateful_sessions"])
def test_what_makes_lmi_start_one_server_is_refused_beside_several(option: str) -> None:
    """LmiConfigRecommender sets maxWorkers=1 for adapters: the other devices would idle."""
    asked = {"engine_options": ((option, "true"),)}
    several, alone = (
        errors(plan_for("lmi", tp_degree=degree, workers=4 // degree, **asked)) for degree in (1, 4)
    )

    name = f"option.{option.removeprefix('option.')}"
    message = f"with {name!r} LMI starts one server, and the plan has 4"
    assert (message, "use --tp-degree 4, or leave it out") in several
    assert message not in [said for said, _ in alone]

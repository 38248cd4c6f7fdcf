"""Layouts of a model over the devices of an instance, by family and version."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from packager.catalog.containers import find_container
from packager.catalog.instances import find_instance, instances
from packager.cli.plugins.tables import FAMILIES
from packager.core.facts import ContainerFacts
from packager.core.model import ModelProfile
from packager.core.ports import ContainerFamily
from packager.core.split import Split
from packager.core.techniques import Draft
from packager.core.traits import EngineTraits
from packager.estimate.sizing.blocks import UNBLOCKED, BlockedModel
from packager.estimate.sizing.parallelism import RequestedSplit
from packager.estimate.sizing.splits import Splits, check_idle, find_splits, may_use_nodes
from packager.models.architectures.profile import make_profile
from packager.models.checkpoints.blocked import Blocked
from packager.optimize.drafts.split import draft_divides
from tests.support import zoo
from tests.support.cases import cases_of
from tests.support.headers import LLAMA_3_8B, LLAMA_3_70B, LOCAL_CPU, model_of

cases = cases_of(__file__)

LLAMA_8B = make_profile(model_of(LLAMA_3_8B))[0]
LLAMA_70B = make_profile(model_of(LLAMA_3_70B))[0]
MIXTRAL = make_profile(zoo.mixtral())[0]
GPT_OSS = make_profile(zoo.gpt_oss())[0]
DEEPSEEK = make_profile(zoo.deepseek_v3())[0]
# Four key-value heads, 28 heads: not over 8 devices.
QWEN_7B = replace(LLAMA_8B, heads=28, kv_heads=4, hidden_size=3584, intermediate_size=18944)
# Qwen3-235B-A22B-FP8: experts of 1536 in blocks of 128 are not cut over 8 devices.
QWEN_235B_FP8 = replace(MIXTRAL, heads=64, kv_heads=4, experts=128, expert_size=1536)
BLOCKED = BlockedModel(
    expert_size=1536,
    experts=(
        Blocked(module="experts.0.up_proj", outputs=1536, inputs=4096, rows=128, columns=128),
    ),
)


PROFILES = {
    "llama-8b": LLAMA_8B,
    "llama-70b": LLAMA_70B,
    "llama-8b with 4 kv heads": replace(LLAMA_8B, kv_heads=4),
    "qwen-7b": QWEN_7B,
    "mixtral": MIXTRAL,
    "gpt-oss": GPT_OSS,
    "deepseek": DEEPSEEK,
}


def traits_of(container: ContainerFacts) -> EngineTraits:
    family: ContainerFamily = FAMILIES.find(container.family).make()
    return family.traits(container)


def found(
    profile: ModelProfile,
    instance: str,
    family: str,
    version: str | None = None,
    blocked: BlockedModel = UNBLOCKED,
    **asked: Any,
) -> Splits:
    machine = find_instance(instance)
    container = find_container(family, machine.kind, version=version, instance_name=machine.name)
    latency = asked.pop("goal", None) == "latency"
    request = RequestedSplit(latency=latency, **asked)
    return find_splits(profile, machine, traits_of(container), request, blocked)


def words(*args: Any, **asked: Any) -> list[str]:
    return [split.words for split in found(*args, **asked).splits]


def error(*args: Any, **asked: Any) -> tuple[str, str]:
    (one,) = [finding for finding in found(*args, **asked).findings if finding.severity == "error"]
    return one.code, one.message


@cases("layouts", asked={}, is_all=False)
def test_layouts_come_in_order_of_what_they_use(case: dict[str, Any]) -> None:
    """`words`: the first layouts, or all where `is_all` says so."""
    found = words(PROFILES[case["profile"]], case["instance"], case["family"], **case["asked"])

    assert found[: None if case["is_all"] else len(case["words"])] == case["words"]


def test_a_pipeline_comes_after_every_layout_without_one() -> None:
    depths = [split.pp_degree for split in found(LLAMA_70B, "ml.g6e.48xlarge", "vllm").splits]

    assert depths == sorted(depths)
    assert set(depths) == {1, 2, 4, 8}


@cases("a_mixture_is_copied", own_experts=False)
def test_copies_of_a_mixture_share_experts_as_the_engine_can(
    family: str, own_experts: bool, holds: list[Split]
) -> None:
    splits = found(MIXTRAL, "ml.p5.48xlarge", family).splits

    assert [one for one in holds if one not in splits] == []
    copies = (split for split in splits if split.dp_degree > 1)
    assert own_experts or all(split.dp_attention for split in copies)


@cases("drafts_beside_copies")
def test_attention_is_laid_out_in_copies_for_some_drafts_only(
    family: str, dp_attention: bool, kind: Any, may: bool
) -> None:
    split = Split(dp_degree=8, dp_attention=dp_attention)

    assert traits_of(find_container(family, "nvidia")).may_draft(split, kind) == may


def test_experts_that_cannot_be_cut_are_spread_whole() -> None:
    splits = found(QWEN_235B_FP8, "ml.p5.48xlarge", "vllm", blocked=BLOCKED).splits

    assert splits[0] == Split(tp_degree=8, expert_parallel=True)
    assert all(split.expert_parallel for split in splits if split.expert_degree == 8)


@cases("a_version_is_given_what_its_options_have")
def test_a_version_is_given_what_its_options_have(version: str, spreads: bool, nodes: int) -> None:
    offered = traits_of(find_container("lmi", "nvidia", version=version))

    assert (offered.expert_parallel, offered.most_nodes) == (spreads, nodes)


def test_vllm_serves_on_several_machines_from_the_version_that_has_the_option() -> None:
    newest = find_container("vllm", "nvidia")
    older = replace(newest, engine_version="0.10.2")

    assert traits_of(newest).most_nodes == 4
    assert traits_of(older).most_nodes == 1
    assert traits_of(older).data_parallel
    assert not traits_of(replace(newest, engine_version="0.7.3")).data_parallel


def test_expert_parallelism_that_was_asked_for_is_the_only_way() -> None:
    asked = found(MIXTRAL, "ml.p5.48xlarge", "vllm", ep=True).splits
    refused = found(MIXTRAL, "ml.p5.48xlarge", "vllm", ep=False).splits

    assert asked and all(split.expert_parallel for split in asked)
    assert refused and not any(split.expert_parallel for split in refused)


@cases("a_degree_that_cannot_be_is_refused_with_its_reason")
def test_a_degree_that_cannot_be_is_refused_with_its_reason(case: dict[str, Any]) -> None:
    where, asked = (PROFILES[case["profile"]], case["instance"], case["family"]), case["asked"]

    code, message = error(*where, **asked)

    assert code == case["code"]
    assert case["says"] in message
    assert found(*where, **asked).splits == ()


@cases("devices_stay_idle_for_a_reason")
def test_devices_stay_idle_for_a_reason(
    profile: str, instance: str, family: str, asked: dict[str, Any], reason: str
) -> None:
    machine = find_instance(instance)
    offered = traits_of(find_container(family, machine.kind, instance_name=machine.name))
    request = RequestedSplit(**asked)
    first = find_splits(PROFILES[profile], machine, offered, request).splits[0]

    messages = [one.message for one in check_idle(first, machine, offered, request)]
    assert bool(messages) == bool(reason)
    assert all(reason in message for message in messages)


def test_on_local_nothing_is_copied_unasked() -> None:
    four = replace(find_instance("ml.g5.12xlarge"), name="local")
    offered = traits_of(find_container("vllm", "nvidia"))
    unasked, asked = (RequestedSplit(dp_degree=degree) for degree in (None, 4))

    assert find_splits(LLAMA_8B, four, offered, unasked).splits[0] == Split()
    assert find_splits(LLAMA_8B, four, offered, asked).splits == (Split(dp_degree=4),)
    (idle,) = check_idle(Split(), four, offered, unasked)
    assert "nothing is copied unasked" in idle.message
    assert list(check_idle(Split(), LOCAL_CPU, offered, unasked)) == []


@cases("several_machines_need_a_fast_network")
def test_several_machines_need_a_fast_network(instance: str, nodes: list[int]) -> None:
    offered = traits_of(find_container("vllm", "nvidia"))

    assert list(may_use_nodes(find_instance(instance), offered)) == nodes


def test_stages_of_a_pipeline_span_the_machines_and_nothing_is_copied() -> None:
    """Copies would be laid beside each other on every machine, and their experts across both."""
    splits = found(DEEPSEEK, "ml.p5.48xlarge", "vllm", nodes=2).splits

    assert splits[0] == Split(tp_degree=8, pp_degree=2, nodes=2)
    assert all(split.pp_degree % 2 == 0 and split.tp_degree <= 8 for split in splits)
    assert all(split.dp_degree == 1 for split in splits)


def test_experts_whose_number_does_not_divide_are_not_given_out() -> None:
    """Qwen1.5-MoE has 60 experts: not the same number on each of 8 devices."""
    splits = found(replace(MIXTRAL, experts=60, expert_size=1408), "ml.p5.48xlarge", "vllm").splits

    assert {split.expert_degree for split in splits if split.expert_parallel} == {2, 4}


@cases("a_draft_is_laid_out_only_where_its_heads_divide")
def test_a_draft_is_laid_out_only_where_its_heads_divide(
    heads: int, kv_heads: int, degree: int, divides: bool
) -> None:
    draft = Draft(
        kind="eagle3",
        speculative_tokens=3,
        attention_heads=heads,
        kv_heads=kv_heads,
        intermediate_size=14336,
    )

    assert draft_divides(draft, degree) == divides


def test_layouts_that_do_not_fit_a_draft_are_left_out_unless_none_fits() -> None:
    splits = found(LLAMA_8B, "ml.p5.48xlarge", "tgi")
    four = splits.where(lambda split: split.tp_degree == 4)

    assert [split.tp_degree for split in four.splits] == [4]
    assert splits.where(lambda split: split.tp_degree == 3) == splits


def test_layouts_keep_the_rules_on_every_instance() -> None:
    """Whole devices, none twice, heads and experts that divide, and one of them uses all it can."""
    profiles = (LLAMA_8B, LLAMA_70B, MIXTRAL, GPT_OSS, DEEPSEEK, QWEN_7B, QWEN_235B_FP8)
    machines = {(one.devices, one.device_name): one for one in instances() if one.kind == "nvidia"}
    looked_at = 0
    for family in ("vllm", "sglang", "lmi", "tgi"):
        offered = traits_of(find_container(family, "nvidia"))
        for machine in machines.values():
            request = RequestedSplit()
            for profile in profiles:
                splits = find_splits(profile, machine, offered, request).splits
                assert len(set(splits)) == len(splits) > 0
                for split in splits:
                    looked_at += 1
                    assert split.devices <= machine.devices
                    assert profile.heads % split.tp_degree == 0
                    assert split.pp_degree <= profile.layers
                    assert split.workers == 1 or (split.dp_degree == 1 and family == "lmi")
                    if split.expert_parallel:
                        assert profile.experts % split.expert_degree == 0
                    elif profile.experts:
                        assert profile.expert_size % split.expert_degree == 0
                flat = [split.devices for split in splits if split.pp_degree == 1]
                assert flat[0] == max(flat)
    assert looked_at > 2000

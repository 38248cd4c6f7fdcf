"""The predictor against published figures, and how it must move."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from packager.catalog.accelerators import accelerator_of
from packager.catalog.instances import find_instance
from packager.core.techniques import Draft
from packager.planning.performance import (
    Coefficients,
    ServedDraft,
    ServedModel,
    Setup,
    Workload,
    concurrencies_of,
    decode_step_s,
    predict,
    predict_point,
    prefill_time_s,
    served_draft,
    setup_of,
)
from tests.planning import zoo
from tests.planning.headers import LLAMA_3_8B, model_of, plan_of

LLAMA_3_70B = ServedModel(
    weight_bytes=141_107_412_992,
    parameters=70_553_706_496,
    layers=80,
    hidden_size=8192,
    kv_bytes_per_token=327_680,
)
LLAMA_3_70B_AWQ = replace(LLAMA_3_70B, weight_bytes=39_800_000_000, scheme="W4A16")
QWEN3_32B = ServedModel(
    weight_bytes=65_524_246_528,
    parameters=32_762_123_264,
    layers=64,
    hidden_size=5120,
    kv_bytes_per_token=262_144,
)
MIXTRAL_8X7B = ServedModel(
    weight_bytes=93_405_585_408,
    parameters=46_702_792_704,
    layers=32,
    hidden_size=4096,
    kv_bytes_per_token=131_072,
    expert_share=0.966,
    experts=8,
    experts_per_token=2,
)
OPEN_ORCA = Workload()
LONG_ANSWERS = Workload(name="long answers", input_tokens=500, output_tokens=2000)
EAGLE = ServedDraft(
    speculative_tokens=3, acceptance_length=2.44, weight_bytes=1_500_000_000, layers=1
)


def setup(model: ServedModel, instance: str, tp_degree: int, **more: object) -> Setup:
    accelerator = accelerator_of(find_instance(instance))
    return replace(Setup(model=model, accelerator=accelerator, tp_degree=tp_degree), **more)


P5 = setup(LLAMA_3_70B, "ml.p5.48xlarge", 8)


def test_llama_3_70b_on_p5_gives_the_published_throughput_at_16_requests() -> None:
    # AWS: 1,200 tokens/s without a draft; aiconfigurator gives 1,235 at concurrency 16.
    assert predict_point(P5, OPEN_ORCA, 16).output_tokens_s == pytest.approx(1200, rel=0.05)


def test_twice_the_requests_give_what_another_predictor_gives() -> None:
    assert predict_point(P5, OPEN_ORCA, 32).output_tokens_s == pytest.approx(2209, rel=0.1)


@pytest.mark.parametrize(("concurrency", "tpot_ms"), [(4, 45.95), (8, 51.02)])
def test_qwen3_32b_on_two_l40s_takes_the_published_time_per_token(
    concurrency: int, tpot_ms: float
) -> None:
    point = predict_point(setup(QWEN3_32B, "ml.g6e.12xlarge", 2), LONG_ANSWERS, concurrency)

    assert point.tpot_s * 1e3 == pytest.approx(tpot_ms, rel=0.15)


def test_one_h100_would_have_been_twice_as_fast_for_qwen3_32b() -> None:
    point = predict_point(setup(QWEN3_32B, "ml.p5.4xlarge", 1), LONG_ANSWERS, 4)

    assert point.tpot_s * 1e3 == pytest.approx(25, rel=0.1)


def test_an_eagle_head_gives_the_published_gain() -> None:
    plain = predict_point(setup(QWEN3_32B, "ml.g6e.12xlarge", 2), LONG_ANSWERS, 8)
    drafted = predict_point(setup(QWEN3_32B, "ml.g6e.12xlarge", 2, draft=EAGLE), LONG_ANSWERS, 8)

    assert drafted.output_tokens_s / plain.output_tokens_s == pytest.approx(2.44, rel=0.15)
    assert drafted.tpot_s * 1e3 == pytest.approx(20.58, rel=0.15)
    assert drafted.step_s / drafted.tpot_s == pytest.approx(2.44)


@pytest.mark.parametrize("instance", ["ml.p5.48xlarge", "ml.g5.48xlarge", "ml.inf2.48xlarge"])
def test_more_requests_at_once_give_more_tokens_and_slower_answers(instance: str) -> None:
    points = [predict_point(setup(LLAMA_3_70B, instance, 8), OPEN_ORCA, 2**n) for n in range(9)]

    rates = [point.output_tokens_s for point in points]
    times = [point.tpot_s for point in points]
    assert rates == sorted(rates)
    assert times == sorted(times)


def test_longer_prompts_fewer_bits_and_more_devices_move_it_the_right_way() -> None:
    base = predict_point(P5, OPEN_ORCA, 8)
    longer = predict_point(P5, replace(OPEN_ORCA, input_tokens=4000), 8)
    packed = predict_point(replace(P5, model=LLAMA_3_70B_AWQ), OPEN_ORCA, 8)
    half = predict_point(replace(P5, tp_degree=4), OPEN_ORCA, 8)

    assert longer.prefill_s > base.prefill_s
    assert longer.tpot_s > base.tpot_s
    assert packed.tpot_s < base.tpot_s
    assert half.tpot_s > base.tpot_s


def test_fp8_computes_a_prompt_faster_than_weights_alone_in_fp8() -> None:
    half = replace(LLAMA_3_70B, weight_bytes=LLAMA_3_70B.weight_bytes // 2)
    computed = predict_point(replace(P5, model=replace(half, scheme="W8A8-FP8")), OPEN_ORCA, 1)
    stored = predict_point(replace(P5, model=replace(half, scheme="W8A16-FP8")), OPEN_ORCA, 1)

    assert computed.prefill_s < stored.prefill_s


def test_a_draft_gains_less_the_more_requests_there_are() -> None:
    drafted = replace(P5, draft=EAGLE)
    gains = [
        predict_point(drafted, OPEN_ORCA, concurrency).output_tokens_s
        / predict_point(P5, OPEN_ORCA, concurrency).output_tokens_s
        for concurrency in (1, 16, 256)
    ]

    assert gains[0] > gains[1] > gains[2]


BARE = Coefficients(memory_share=1.0, compute_share=1.0, layer_s=0.0, hop_s=0.0)


def test_each_device_sends_its_part_of_an_all_reduce_nearly_twice() -> None:
    """In a ring of 8, 7/8 twice of 622 x 8192 values of 2 bytes, 2 times in each of 80 layers."""
    slow, fast = (
        replace(P5, accelerator=replace(P5.accelerator, link_bytes_s=speed))
        for speed in (1e9, 1e30)
    )

    exchanged_s = prefill_time_s(slow, 622, BARE) - prefill_time_s(fast, 622, BARE)

    assert exchanged_s == pytest.approx(160 * 17_833_984 / 1e9)


@pytest.mark.parametrize(("speculative_tokens", "wider"), [(1, 2), (3, 4), (7, 8)])
def test_a_step_with_a_draft_computes_the_proposed_tokens_and_one_more(
    speculative_tokens: int, wider: int
) -> None:
    """A step of 4096 sequences waits for arithmetic, so its time follows its tokens."""
    computing = replace(P5, tp_degree=1, model=replace(LLAMA_3_70B, kv_bytes_per_token=0))
    free = ServedDraft(speculative_tokens=speculative_tokens, acceptance_length=2.0)

    plain_s = decode_step_s(computing, 4096, 0, BARE)
    drafted_s = decode_step_s(replace(computing, draft=free), 4096, 0, BARE)

    assert drafted_s == pytest.approx(wider * plain_s)


def test_copies_share_the_requests() -> None:
    two = replace(P5, tp_degree=4, replicas=2)
    alone = predict_point(replace(P5, tp_degree=4), OPEN_ORCA, 8)

    point = predict_point(two, OPEN_ORCA, 16)
    assert point.output_tokens_s == pytest.approx(2 * alone.output_tokens_s)
    assert point.tpot_s == pytest.approx(alone.tpot_s)


def test_one_sequence_of_a_mixture_reads_only_its_experts() -> None:
    mixture = setup(MIXTRAL_8X7B, "ml.p5.48xlarge", 8)
    dense = replace(mixture, model=replace(MIXTRAL_8X7B, experts=0))

    alone = predict_point(mixture, OPEN_ORCA, 1).tpot_s / predict_point(dense, OPEN_ORCA, 1).tpot_s
    many = predict_point(mixture, OPEN_ORCA, 64).step_s / predict_point(dense, OPEN_ORCA, 64).step_s
    assert alone < 0.8
    assert alone < many <= 1


@pytest.mark.parametrize(
    ("found", "band"),
    [
        (P5, 0.2),
        (setup(LLAMA_3_70B, "ml.p4d.24xlarge", 8), 0.2),
        (setup(QWEN3_32B, "ml.p5.4xlarge", 1), 0.2),
        (setup(QWEN3_32B, "ml.g6e.12xlarge", 2), 0.4),
        (setup(QWEN3_32B, "ml.g5.xlarge", 1), 0.4),
        (setup(QWEN3_32B, "ml.inf2.48xlarge", 24), 0.4),
        (setup(MIXTRAL_8X7B, "ml.p5.48xlarge", 8), 0.4),
        (replace(P5, model=LLAMA_3_70B_AWQ), 0.4),
        (replace(P5, model=replace(LLAMA_3_70B, weight_bytes=8_000_000)), 0.4),
    ],
    ids=["p5", "p4d", "one h100", "pcie", "a10g", "neuron", "mixture", "awq", "tiny"],
)
def test_what_was_never_measured_gets_a_wide_band_and_says_so(found: Setup, band: float) -> None:
    prediction = predict(found, OPEN_ORCA, (1,))

    assert prediction is not None
    assert prediction.band == band
    assert any("never measured" in words for words in prediction.assumptions) == (band == 0.4)


def test_without_published_figures_nothing_is_predicted() -> None:
    assert predict(setup(QWEN3_32B, "ml.m7i.8xlarge", 1), OPEN_ORCA, (1,)) is None


def test_a_plan_of_a_mixture_tells_its_experts() -> None:
    plan = plan_of(zoo.mixtral(), "ml.p5.48xlarge", family="lmi")
    model = setup_of(plan, accelerator_of(plan.instance)).model

    assert (model.experts, model.experts_per_token) == (8, 2)
    assert model.expert_share == pytest.approx(0.966, abs=0.002)


def test_devices_that_a_server_leaves_idle_are_not_counted() -> None:
    asked = {"max_batch": 4, "tp_degree": 2}
    plans = [
        plan_of(model_of(LLAMA_3_8B), "ml.g5.12xlarge", family="vllm", dp_degree=1, **asked),
        plan_of(model_of(LLAMA_3_8B), "ml.g5.12xlarge", family="vllm", **asked),
        plan_of(model_of(LLAMA_3_8B), "ml.g5.12xlarge", family="lmi", **asked),
    ]

    assert [plan.replicas for plan in plans] == [1, 2, 2]
    assert [concurrencies_of(plan)[-1] for plan in plans] == [4, 8, 8]


def test_a_plan_says_what_the_formula_needs() -> None:
    plan = plan_of(model_of(LLAMA_3_8B), "ml.g5.12xlarge", family="lmi", max_batch=4)
    found = setup_of(plan, accelerator_of(plan.instance))

    assert found.model.weight_bytes == plan.budget.weights_bytes * plan.tp_degree
    assert concurrencies_of(plan)[0] == 1
    assert concurrencies_of(plan)[-1] == 4 * plan.replicas
    assert predict(found, OPEN_ORCA, concurrencies_of(plan)) is not None


def test_an_acceptance_length_that_is_assumed_says_where_it_is_from() -> None:
    draft = Draft(kind="ngram", speculative_tokens=4)

    assert served_draft(draft).source.startswith("a guess")
    assert served_draft(draft, 2.0).source == "measured"
    assert math.isclose(served_draft(draft, 2.0).acceptance_length, 2.0)

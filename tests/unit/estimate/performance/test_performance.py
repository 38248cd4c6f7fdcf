"""The predictor against published figures, and how it must move."""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from packager.catalog.accelerators import accelerator_of
from packager.core.techniques import Draft
from packager.estimate.performance.bands import Band, bands_of
from packager.estimate.performance.exchange import exchange_s
from packager.estimate.performance.predict import (
    ServedDraft,
    ServedModel,
    Setup,
    Workload,
    concurrencies_of,
    predict,
    predict_point,
    served_draft,
    setup_of,
)
from packager.estimate.performance.published import published_table
from packager.estimate.performance.served import precision_of
from packager.estimate.performance.setup_tables import coefficients_of
from packager.estimate.performance.speed_table import Kind, speed_table
from packager.estimate.performance.speed_terms import STEP_TERMS, looked_at_tokens, step_terms
from tests.support import zoo
from tests.support.cases import as_type, cases_of, read_tables
from tests.support.headers import LLAMA_3_8B, model_of, plan_of
from tests.support.known import known
from tests.support.served_models import EAGLE, MIXTRAL_8X7B, QWEN3_32B, setup

cases = cases_of(__file__)

LLAMA_3_70B = as_type(read_tables(__file__)["llama_3_70b"], ServedModel)
LLAMA_3_70B_AWQ = replace(LLAMA_3_70B, weight_bytes=39_800_000_000, scheme="W4A16")
OPEN_ORCA = Workload()
LONG_ANSWERS = Workload(name="long answers", input_tokens=500, output_tokens=2000)


P5 = setup(LLAMA_3_70B, "ml.p5.48xlarge", 8)
FP8_70B = replace(LLAMA_3_70B, scheme="W8A8-FP8", weight_bytes=70_600_000_000)
MEASURED_SETUP = replace(P5, model=FP8_70B, engine="vllm")
MODELS = {
    "llama-70b": LLAMA_3_70B,
    "llama-70b-fp8": FP8_70B,
    "qwen3-32b": QWEN3_32B,
    "mixtral": MIXTRAL_8X7B,
}
WORKLOADS = {"long answers": LONG_ANSWERS, None: OPEN_ORCA}


def made(box: dict[str, Any]) -> Setup:
    """Make the set-up that a row of the corpus tells of."""
    model = replace(MODELS[box["model"]], **box.get("model_changes", {}))
    draft = EAGLE if "drafted" in box else None
    return setup(model, box["instance"], box["devices"], draft=draft, **box.get("setup", {}))


def holds(setup: Setup, workload: Workload, concurrency: int, tpot_ms: float) -> bool:
    """Return whether a time per token lies inside what is printed for it."""
    prediction = known(predict(setup, workload, (concurrency,)))
    printed_ms = 1e3 * prediction.points[0].tpot_s
    return abs(tpot_ms / printed_ms - 1) <= prediction.band


def test_llama_3_70b_on_p5_gives_the_published_throughput_between_16_and_32_requests() -> None:
    # AWS announced 1,200 tokens/s without a draft and no concurrency; aiconfigurator gives 1,235
    # at 16 and 2,209 at 32.
    rates = [predict_point(P5, OPEN_ORCA, requests).output_tokens_s for requests in (16, 32)]

    assert rates[0] == pytest.approx(1200, rel=0.15)
    assert rates[0] < 1200 < rates[1]


@cases("published")
def test_a_set_up_takes_the_published_time_per_token(
    box: dict[str, Any], workload: str | None, concurrency: int, tpot_ms: float, within: float
) -> None:
    point = predict_point(made(box), WORKLOADS[workload], concurrency)

    assert point.tpot_s * 1e3 == pytest.approx(tpot_ms, rel=within)


def test_a_draft_gives_the_published_throughput_within_its_band() -> None:
    """AWS: 1,200 tokens/s become 2,400 with a draft, at requests that it does not state."""
    box = replace(P5, engine="vllm")
    draft = ServedDraft(
        speculative_tokens=4, acceptance_length=2.4, weight_bytes=2_470_000_000, layers=16
    )
    found = [predict(each, OPEN_ORCA, (24,)) for each in (box, replace(box, draft=draft))]

    for published, prediction in zip((1200, 2400), map(known, found), strict=True):
        printed = prediction.points[0].output_tokens_s
        assert abs(published / printed - 1) <= known(prediction.bands).throughput.share


def test_mixtral_with_medusa_on_g5_takes_the_published_time_per_token() -> None:
    """AWS and Leidos: 50 to 60 ms per token with TGI on ml.g5.12xlarge, prompts of up to 8k."""
    medusa = ServedDraft(speculative_tokens=3, acceptance_length=2.2, weight_bytes=700_000_000)
    awq = replace(MIXTRAL_8X7B, weight_bytes=24_700_000_000, scheme="W4A16")
    box = setup(awq, "ml.g5.12xlarge", 4, engine="tgi", draft=medusa)
    long_prompts = replace(OPEN_ORCA, input_tokens=8000, output_tokens=500)

    for published_ms in (50, 60):
        assert holds(box, OPEN_ORCA, 32, published_ms)
        assert holds(box, long_prompts, 8, published_ms)


def test_an_eagle_head_gives_the_published_gain() -> None:
    plain = predict_point(setup(QWEN3_32B, "ml.g6e.12xlarge", 2), LONG_ANSWERS, 8)
    drafted = predict_point(setup(QWEN3_32B, "ml.g6e.12xlarge", 2, draft=EAGLE), LONG_ANSWERS, 8)

    assert drafted.output_tokens_s / plain.output_tokens_s == pytest.approx(2.44, rel=0.15)
    assert drafted.step_s / drafted.tpot_s == pytest.approx(2.44)


@pytest.mark.parametrize("instance", ["ml.p5.48xlarge", "ml.g5.48xlarge", "ml.inf2.48xlarge"])
def test_more_requests_at_once_give_more_tokens_and_slower_answers(instance: str) -> None:
    points = [predict_point(setup(LLAMA_3_70B, instance, 8), OPEN_ORCA, 2**n) for n in range(9)]

    rates = [point.output_tokens_s for point in points]
    times = [point.tpot_s for point in points]
    # Eight cards over PCIe exchange large messages slower than small ones by the byte.
    assert all(more > 0.9 * fewer for fewer, more in pairwise(rates))
    assert rates[-1] > 3 * rates[0]
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


def test_copies_share_the_requests() -> None:
    two = replace(P5, tp_degree=4, replicas=2)
    alone = predict_point(replace(P5, tp_degree=4), OPEN_ORCA, 8)

    point = predict_point(two, OPEN_ORCA, 16)
    assert point.output_tokens_s == pytest.approx(2 * alone.output_tokens_s)
    assert point.tpot_s == pytest.approx(alone.tpot_s)


@pytest.mark.parametrize(("sequences", "share"), [(1, 0.25), (4, 0.683594), (64, 1.0)])
def test_sequences_read_the_experts_that_they_reach(sequences: int, share: float) -> None:
    mixture = setup(MIXTRAL_8X7B, "ml.p5.48xlarge", 8)
    experts = STEP_TERMS.index("expert_weights")
    all_s = 0.966 * 93_405_585_408 / (8 * 3350e9)

    assert step_terms(mixture, sequences, 0)[experts] == pytest.approx(share * all_s, rel=1e-4)


@cases("bands")
def test_a_band_is_as_wide_as_what_was_never_measured_demands(
    box: dict[str, Any], least: float, most: float, words: str | None
) -> None:
    prediction = known(predict(made(box), OPEN_ORCA, (1,)))

    bands = known(prediction.bands)
    assert least <= prediction.band <= most
    assert bands.throughput.share >= min(least, 0.25)
    assert bands.tpot.source
    told = [line for line in prediction.assumptions if line.startswith("never measured")]
    assert bool(told) == bool(words)
    assert not words or any(words in line for line in told)


def test_an_unknown_mixture_of_experts_never_gets_the_band_of_a_known_one() -> None:
    form: dict[str, Any] = {
        "hidden_size": 2880,
        "layers": 36,
        "experts": 128,
        "experts_per_token": 4,
    }
    gpt_oss = replace(MIXTRAL_8X7B, **form, scheme="MXFP4")
    ours, strangers = (
        known(predict(setup(model, "ml.p5en.48xlarge", 2, engine="vllm"), OPEN_ORCA, (1,)))
        for model in (gpt_oss, replace(gpt_oss, known=False))
    )

    assert ours.band < 0.5
    assert strangers.band >= 0.8


def test_devices_without_curves_are_corrected_by_what_they_were_measured_to_reach() -> None:
    """An A100 reaches 0.686 of its bandwidth, the devices with curves 0.753 in the mean."""
    every = speed_table().of_engine("vllm", "dense")
    a100 = coefficients_of(setup(LLAMA_3_70B, "ml.p4de.24xlarge", 8))

    assert a100.step[0] / every.step[0] == pytest.approx(0.753 / 0.686, rel=0.001)


def test_the_widest_band_stands_for_figures_of_both_kinds() -> None:
    found = known(predict(setup(QWEN3_32B, "ml.p5.4xlarge", 1), OPEN_ORCA, (1,)))
    wider = replace(known(found.bands), throughput=Band(share=0.9, source="a test"))

    assert found.widest == max(found.band, known(found.bands).throughput.share)
    assert replace(found, bands=wider).widest == 0.9
    assert replace(found, bands=None).widest == found.band


def test_a_time_to_first_token_has_a_band_of_its_own_or_is_not_shown() -> None:
    """One mixture on vLLM was published with a first token alone: no other can be left out."""
    measured = known(known(predict(MEASURED_SETUP, OPEN_ORCA, (8,))).bands)
    mixture = setup(MIXTRAL_8X7B, "ml.p5.48xlarge", 8)
    stranger = known(known(predict(mixture, OPEN_ORCA, (8,))).bands)

    assert measured.tpot.share < known(measured.ttft).share <= 1.5
    assert stranger.ttft is None

    known_kind = setup(MIXTRAL_8X7B, "ml.p5.48xlarge", 8, engine="sglang")
    for changes in ({"known": False}, {"weight_bytes": 8_000_000}):
        assert bands_of(replace(known_kind, model=replace(MIXTRAL_8X7B, **changes))).ttft is None
    assert bands_of(known_kind).ttft


def test_first_tokens_take_what_published_servers_of_the_class_add() -> None:
    """MiniMax-M2.5 alone on 8 B200 with SGLang: 116 ms, of which its work explains half."""
    box = setup(MIXTRAL_8X7B, "ml.p6-b200.48xlarge", 8, engine="sglang")
    tables = published_table().first["nvidia", "sglang", "moe"]

    point = predict_point(box, OPEN_ORCA, 1)

    assert 0.02 < tables.once_s < 0.1
    assert tables.once_s < point.prefill_s < tables.once_s + 0.1
    assert known(bands_of(box).ttft).share == tables.share


@pytest.mark.parametrize(("device", "is_said"), [("b300", True), ("b200", False)])
def test_a_model_that_was_measured_slower_on_the_faster_device_says_so(
    device: str, is_said: bool
) -> None:
    """DeepSeek-V3 in FP8 with SGLang: on the B300 it took 1.1 to 2.2 times as long."""
    form: dict[str, Any] = {"hidden_size": 7168, "layers": 61, "experts": 256}
    model = replace(MIXTRAL_8X7B, scheme="W8A8-FP8", **form)
    box = setup(model, f"ml.p6-{device}.48xlarge", 8, engine="sglang")

    found = known(predict(box, OPEN_ORCA, (8,)))

    told = [line for line in found.assumptions if line.startswith("measured so")]
    assert bool(told) == is_said
    assert not is_said or "slower than on the B200 at 8 of 8 points" in told[0]
    assert not is_said or "a step is predicted 1.08 and a prompt 5.40 times as long" in told[0]
    assert (found.band > 0.6) == is_said


def test_a_model_that_was_measured_as_fast_on_the_faster_device_says_so() -> None:
    """MiniMax-M2.5 in FP8 with vLLM: on the B300 8 of 28 points took up to 1.02 times as long."""
    form: dict[str, Any] = {"hidden_size": 3072, "layers": 62, "experts": 256}
    model = replace(MIXTRAL_8X7B, scheme="W8A8-FP8", **form)
    box = setup(model, "ml.p6-b300.48xlarge", 4, engine="vllm")

    found = known(predict(box, OPEN_ORCA, (8,)))

    [said] = [line for line in found.assumptions if line.startswith("measured so")]
    assert "slower than on the B200 at 8 of 28 points" in said
    assert said.endswith(
        "up to 1.02 times as long; the prediction keeps the order of the data sheets"
    )
    assert found.band < 0.6


def test_the_faster_device_is_predicted_slower_where_most_points_of_the_model_say_so() -> None:
    """The same model in another format, and another engine, keep the order of the data sheets."""
    form: dict[str, Any] = {"hidden_size": 7168, "layers": 61, "experts": 256}
    model = replace(MIXTRAL_8X7B, scheme="W8A8-FP8", **form)

    def slower(engine: str, scheme: str) -> bool:
        b200, b300 = (
            setup(replace(model, scheme=scheme), f"ml.p6-{name}.48xlarge", 8, engine=engine)
            for name in ("b200", "b300")
        )
        return predict_point(b300, OPEN_ORCA, 8).tpot_s > predict_point(b200, OPEN_ORCA, 8).tpot_s

    assert slower("sglang", "W8A8-FP8")
    assert not slower("sglang", "NVFP4")
    assert not slower("vllm", "W8A8-FP8")


@pytest.mark.parametrize(("kind", "requests", "tokens"), [("dense", 0.35, 0.1), ("moe", 0.1, 0.24)])
def test_bands_grow_beyond_the_data_as_errors_were_seen_to(
    kind: Kind, requests: float, tokens: float
) -> None:
    model = MIXTRAL_8X7B if kind == "moe" else QWEN3_32B
    box = setup(model, "ml.p5en.48xlarge", 8, engine="vllm")
    cell = speed_table().cells["vllm", "H200", kind]
    edge = replace(OPEN_ORCA, input_tokens=cell.most_tokens - OPEN_ORCA.output_tokens)
    longer = replace(edge, input_tokens=edge.input_tokens + cell.most_tokens)

    inside = bands_of(box, edge, cell.most_sequences).tpot.share
    more = bands_of(box, edge, 2 * cell.most_sequences).tpot.share

    assert more / inside == pytest.approx(1 + requests)
    assert bands_of(box, longer, 1).tpot.share / inside == pytest.approx(1 + tokens)


def test_time_to_first_token_grows_with_the_step_that_runs_and_the_prompt() -> None:
    alone, queued = (predict_point(P5, OPEN_ORCA, requests) for requests in (1, 64))
    longer = predict_point(P5, replace(OPEN_ORCA, input_tokens=8000), 64)

    assert alone.ttft_s < queued.ttft_s < longer.ttft_s
    assert alone.prefill_s == queued.prefill_s == alone.ttft_s


def test_a_prompt_of_twice_the_length_costs_more_than_twice() -> None:
    """Every token is compared with all before it."""
    times = [
        predict_point(P5, replace(OPEN_ORCA, input_tokens=tokens), 1).prefill_s
        for tokens in (32_000, 64_000, 128_000)
    ]

    assert times[2] - times[1] > 2.2 * (times[1] - times[0])


def test_a_sliding_window_bounds_what_a_step_reads_of_long_contexts() -> None:
    windowed = replace(LLAMA_3_70B, window_tokens=1024, window_share=1.0)
    full, within = (
        [
            predict_point(replace(P5, model=model), replace(OPEN_ORCA, input_tokens=tokens), 1)
            for tokens in (8_000, 64_000)
        ]
        for model in (LLAMA_3_70B, windowed)
    )

    assert within[1].step_s - within[0].step_s == pytest.approx(0, abs=1e-9)
    assert full[1].step_s > full[0].step_s
    assert looked_at_tokens(replace(windowed, window_share=0.5), 64_000) == 32_512


@pytest.mark.parametrize(("concurrency", "faster"), [(1, "awq"), (256, "fp8")])
def test_awq_is_faster_than_fp8_for_few_requests_only(concurrency: int, faster: str) -> None:
    """4-bit weights are read faster and unpacked to 16 bits, in which an H100 computes half."""
    small = replace(LLAMA_3_70B, **read_tables(__file__)["llama_3_8b"])
    awq = replace(small, weight_bytes=5_000_000_000, scheme="W4A16")
    times = {
        name: predict_point(setup(model, "ml.p5.4xlarge", 1), OPEN_ORCA, concurrency).tpot_s
        for name, model in (("fp8", small), ("awq", awq))
    }

    assert min(times, key=lambda name: times[name]) == faster


def test_mxfp4_is_unpacked_on_devices_without_arithmetic_in_4_bits() -> None:
    gpt_oss = replace(MIXTRAL_8X7B, scheme="MXFP4")

    assert precision_of(setup(gpt_oss, "ml.p5.48xlarge", 8)) == "unpacked"
    assert precision_of(setup(gpt_oss, "ml.p6-b200.48xlarge", 8)) == "fp4"


@pytest.mark.parametrize(("speculative_tokens", "tokens"), [(1, 2), (3, 4), (7, 8)])
def test_a_step_with_a_draft_computes_the_proposed_tokens_and_one_more(
    speculative_tokens: int, tokens: int
) -> None:
    free = ServedDraft(speculative_tokens=speculative_tokens, acceptance_length=2.0)
    arithmetic = STEP_TERMS.index("arithmetic")

    plain = step_terms(P5, 64, 0)[arithmetic]
    assert step_terms(replace(P5, draft=free), 64, 0)[arithmetic] == pytest.approx(tokens * plain)


def test_ranks_that_share_experts_read_them_once_and_attend_to_their_own() -> None:
    alone = setup(MIXTRAL_8X7B, "ml.p5.48xlarge", 2)
    shared = replace(alone, dp_degree=4)
    one, four = (
        dict(zip(STEP_TERMS, step_terms(box, 64, 1000), strict=True)) for box in (alone, shared)
    )

    assert four["expert_weights"] == pytest.approx(one["expert_weights"] / 4)
    assert four["dense_weights"] == pytest.approx(one["dense_weights"])
    assert four["cache"] == pytest.approx(one["cache"] / 4)
    assert four["sequence"] == pytest.approx(one["sequence"] / 4)


def test_a_latent_is_whole_on_every_device() -> None:
    """As the budget counts it: what all devices hold together grows with their number."""
    halves = replace(LLAMA_3_70B, kv_bytes_per_token=8 * 70_272, latent=True)
    cache = STEP_TERMS.index("cache")

    assert step_terms(replace(P5, model=halves), 1, 1000)[cache] == pytest.approx(
        70_272 * 1000 / P5.accelerator.bandwidth_bytes_s
    )


def test_one_prediction_takes_microseconds() -> None:
    """A plan asks for hundreds. Calls are counted: a clock counts the collector's work, too."""
    predict_point(P5, OPEN_ORCA, 8)
    calls = 0

    def count(*_: object) -> None:
        nonlocal calls
        calls += 1

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        predict_point(P5, OPEN_ORCA, 500)
    finally:
        sys.setprofile(before)

    assert 10 < calls < 1000  # it was 115, of 12 microseconds


def test_without_published_figures_nothing_is_predicted() -> None:
    assert predict(setup(QWEN3_32B, "ml.m7i.8xlarge", 1), OPEN_ORCA, (1,)) is None


def test_a_plan_of_a_mixture_tells_its_experts() -> None:
    plan = plan_of(zoo.mixtral(), "ml.p5.48xlarge", family="lmi")
    model = setup_of(plan, accelerator_of(plan.instance)).model

    assert (model.experts, model.experts_per_token) == (8, 2)
    assert model.expert_share == pytest.approx(0.968, abs=0.001)


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

    weight_bytes = plan.budget.weights_bytes * plan.tp_degree
    assert weight_bytes - found.model.weight_bytes == 1_050_681_344  # the embedding, a norm
    assert (found.model.attention_size, found.model.cached_layers) == (4096, 32)
    assert concurrencies_of(plan)[0] == 1
    assert concurrencies_of(plan)[-1] == 4 * plan.replicas
    assert predict(found, OPEN_ORCA, concurrencies_of(plan)) is not None


def test_latents_windows_and_shared_experts_of_a_plan_reach_the_formula() -> None:
    deepseek, oss = (
        setup_of(plan, accelerator_of(plan.instance)).model
        for plan in (
            plan_of(zoo.deepseek_v3(), "ml.p5en.48xlarge", tp_degree=8),
            plan_of(zoo.gpt_oss(), "ml.p5en.48xlarge", tp_degree=4),
        )
    )

    assert deepseek.latent
    assert deepseek.kv_bytes_per_token == 8 * 70_272  # whole on each of 8 devices
    assert deepseek.active_parameters == pytest.approx(36.6e9, rel=0.01)  # of 37.5, a row of words
    assert (oss.window_tokens, oss.window_share) == (128, 0.5)
    assert oss.scheme == "MXFP4"
    assert oss.expert_share == pytest.approx(0.804, abs=0.002)  # in 4 bits, of all else in 16
    assert oss.weight_bytes == pytest.approx(13.14e9, rel=0.01)


def test_an_acceptance_length_that_is_assumed_says_where_it_is_from() -> None:
    draft = Draft(kind="ngram", speculative_tokens=4)

    assert served_draft(draft).source.startswith("a guess")
    assert served_draft(draft, 2.0).source == "measured"
    assert math.isclose(served_draft(draft, 2.0).acceptance_length, 2.0)


def test_attention_and_mlp_of_each_layer_end_in_an_all_reduce() -> None:
    step = dict(zip(STEP_TERMS, step_terms(P5, 4, 1000), strict=True))
    once_s = exchange_s(P5.accelerator, P5.tp_degree, 4 * P5.model.hidden_size)

    assert step["exchange"] / once_s == pytest.approx(160)  # of 80 layers

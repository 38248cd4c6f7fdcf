"""Estimates of time against recorded runs of the real tool, and what corrects them."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from packager.catalog.accelerators import accelerator_of
from packager.catalog.instances import find_instance
from packager.core.image import Inline
from packager.core.model import ModelFile, ModelProfile
from packager.core.recipe import Estimate, Step, StepInput, Work
from packager.core.samples import Message, Sample, Samples
from packager.core.tool import ToolFacts
from packager.core.training import HeadTraining
from packager.estimate.performance.amounts import (
    TextAmounts,
    answering_work,
    comparing_work,
    matrices_of,
    quantizing_work,
    texts_of,
)
from packager.estimate.performance.effort import (
    Machine,
    PastRun,
    estimated_seconds,
    label_of_run,
    machine_for,
    past_run,
    processor_of,
    stage_seconds,
    threads_of,
    time_limit_s,
    timing_of,
)
from packager.models.architectures.profile import make_profile
from packager.optimize.drafts.train.steps import TrainingInputs as TrainingFiles
from packager.optimize.drafts.train.steps import training_step
from tests.support import zoo
from tests.support.cases import cases_of
from tests.support.headers import LLAMA_3_8B, LLAMA_3_70B, LOCAL_CPU, model_of
from tests.support.known import known
from tests.support.places import DATA

cases = cases_of(__file__)

# One core of an AMD EPYC (Zen 5) on 2026-11-22, OMP_NUM_THREADS=1, in seconds of the processor;
# libraries were loaded before, and files were in memory.
RUNS = [
    json.loads(line) for line in (DATA / "performance" / "effort.jsonl").read_text().splitlines()
]
HERE = replace(LOCAL_CPU, isa=("avx2", "avx512_bf16", "avx512f"), vcpus=2)
ONE_THREAD = {"OMP_NUM_THREADS": "1"}


def profile_of(run: dict[str, Any]) -> ModelProfile:
    config = {
        **LLAMA_3_8B,
        "hidden_size": run["hidden"],
        "intermediate_size": run["intermediate"],
        "num_hidden_layers": run["layers"],
        "num_attention_heads": run["heads"],
        "num_key_value_heads": run["kv_heads"],
        "vocab_size": run["vocab"],
    }
    return make_profile(model_of(config))[0]


def id_of(run: dict[str, Any]) -> str:
    return f"{run['method']}-{run['hidden']}-{run['texts']}x{run['tokens']}"


def step_of(
    profile: ModelProfile,
    texts: TextAmounts,
    method: str,
    env: dict[str, str] | None = None,
    **more: Any,
) -> Step:
    work = quantizing_work(
        profile,
        texts,
        method=method,
        weight_bytes=profile.weight_bytes,
        result_bytes=profile.weight_bytes // 3,
    )
    needs = Estimate(
        memory_bytes=2 * profile.weight_bytes,
        work=work,
        method=f"llmcompressor/{method}",
        size_bytes=profile.weight_bytes,
    )
    env = ONE_THREAD if env is None else env
    return Step(name="quantize", tool="t", gives="model", needs=needs, env=env, **more)


@pytest.mark.parametrize("run", RUNS, ids=id_of)
def test_an_estimate_is_within_a_factor_of_two_of_the_recorded_run(run: dict[str, Any]) -> None:
    step = step_of(
        profile_of(run), TextAmounts(count=run["texts"], tokens=run["tokens"]), run["method"]
    )
    machine = known(machine_for(step, HERE, None))
    machine = Machine(host=replace(machine.host, disk_bytes_s=1e18, import_s=0.0))

    assert 0.5 <= estimated_seconds(step, machine) / run["cpu_s"] <= 2.0


def seconds_on(name: str, step: Step) -> float:
    instance = find_instance(name)
    machine = known(machine_for(step, instance, accelerator_of(instance)))
    return estimated_seconds(step, machine)


EIGHT_B = make_profile(model_of(LLAMA_3_8B))[0]
SEVENTY_B = make_profile(model_of(LLAMA_3_70B))[0]
USUAL = TextAmounts(count=256, tokens=256 * 512)


@cases("an_iteration_of_autoround_is_estimated_within_a_factor_of_two")
def test_an_iteration_of_autoround_is_estimated_within_a_factor_of_two(
    hidden: int, heads: int, vocab: int, measured: float
) -> None:
    sizes = {"hidden": hidden, "intermediate": 3 * hidden, "layers": 1, "heads": heads}
    profile = profile_of({**sizes, "kv_heads": heads // 2, "vocab": vocab})
    texts = TextAmounts(count=8, tokens=8 * 128)  # on 2026-11-22, the processor above

    def seconds(iterations: int) -> float:
        work = quantizing_work(
            profile,
            texts,
            method="autoround",
            weight_bytes=profile.weight_bytes,
            result_bytes=profile.weight_bytes // 3,
            iterations=iterations,
        )
        step = step_of(profile, texts, "autoround", ONE_THREAD)
        step = replace(step, needs=replace(step.needs, work=work))
        machine = known(machine_for(step, HERE, None))
        return estimated_seconds(step, machine)

    each = (seconds(11) - seconds(1)) / 10

    assert measured / 2 <= each <= measured * 2


def test_awq_of_70b_is_days_on_one_thread_and_hours_on_a_gpu() -> None:
    # 30 days on one thread with AMX were extrapolated from one layer, for 256 x 2048 tokens.
    long = TextAmounts(count=256, tokens=256 * 2048)
    processor = step_of(SEVENTY_B, long, "awq")
    gpu = step_of(SEVENTY_B, long, "awq", env={}, gpus=1)

    assert 5 * 86400 < seconds_on("ml.r7i.8xlarge", processor) < 60 * 86400
    assert 6 * 3600 < seconds_on("ml.g5.12xlarge", gpu) < 2 * 86400
    assert seconds_on("ml.p5.48xlarge", gpu) < seconds_on("ml.g5.12xlarge", gpu)


@pytest.mark.parametrize("method", ["awq", "gptq", "smoothquant"])
def test_more_texts_and_more_layers_take_longer(method: str) -> None:
    def seconds(profile: ModelProfile, texts: TextAmounts) -> float:
        return seconds_on("ml.m7i.4xlarge", step_of(profile, texts, method))

    fewer = TextAmounts(count=64, tokens=64 * 512)
    assert seconds(EIGHT_B, fewer) < seconds(EIGHT_B, USUAL) < seconds(SEVENTY_B, USUAL)
    # The fixed part of AWQ and GPTQ does not grow with the texts.
    assert seconds(EIGHT_B, USUAL) < 5 * seconds(EIGHT_B, fewer)


def test_methods_without_texts_take_reading_rounding_and_writing() -> None:
    none = TextAmounts(count=0, tokens=0)
    seconds = seconds_on("ml.m7i.4xlarge", step_of(EIGHT_B, none, "fp8"))

    assert 60 < seconds < 600
    assert seconds < seconds_on("ml.m7i.4xlarge", step_of(EIGHT_B, none, "nvfp4"))


def test_experts_are_all_calibrated() -> None:
    mixture = replace(EIGHT_B, experts=8, experts_per_token=2, expert_size=14336)
    mixture = replace(mixture, linear_parameters=0)
    step, dense = step_of(mixture, USUAL, "gptq"), step_of(EIGHT_B, USUAL, "gptq")

    assert sum(one.weights for one in matrices_of(mixture)) == 1_451_229_184
    assert 6 < seconds_on("ml.r7i.8xlarge", step) / seconds_on("ml.r7i.8xlarge", dense) < 9


@cases("threads")
def test_a_small_model_has_one_thread_and_a_large_one_the_cores_of_the_machine(
    instance: str, env: dict[str, str], threads: int
) -> None:
    assert threads_of(step_of(EIGHT_B, USUAL, "awq", env=env), find_instance(instance)) == threads


@cases("described")
def test_here_a_step_has_the_threads_it_was_described_with(
    env: dict[str, str], threads: int, used: int
) -> None:
    step = replace(step_of(EIGHT_B, USUAL, "awq", env=env), threads=threads)
    assert threads_of(step, replace(HERE, vcpus=8)) == used


@cases("processors")
def test_a_processor_is_known_by_its_instruction_sets_or_its_family(
    isa: tuple[str, ...], family: str, name: str
) -> None:
    assert processor_of(replace(LOCAL_CPU, isa=isa, family=family))[1] == name


def test_a_gpu_without_figures_gives_no_time() -> None:
    instance = replace(find_instance("ml.g5.xlarge"), device_name="Unheard-of")
    step = step_of(EIGHT_B, USUAL, "awq", gpus=1)

    assert machine_for(step, instance, accelerator_of(instance)) is None
    assert timing_of(step, None).origin == ""


def test_a_step_without_amounts_takes_a_time_that_nobody_knows() -> None:
    step = Step(name="compile", tool="neuron", gives="compiled")
    timing = timing_of(step, machine_for(step, HERE, None))

    assert (timing.seconds, timing.origin) == (0.0, "")


def test_tokens_of_texts_are_cut_to_what_a_sample_may_have() -> None:
    rows = (
        Sample(text="x" * 40_000),
        Sample(prompt="y" * 300, completion="y" * 100),
        Sample(messages=(Message(role="user", content="z" * 80),)),
    )
    counted = texts_of(Samples(source="s", samples=rows), 512)

    assert (counted.count, counted.tokens) == (3, 512 + 100 + 20)


def test_long_work_is_given_time_and_short_work_a_day() -> None:
    tiny = step_of(profile_of(RUNS[0]), TextAmounts(count=8, tokens=512), "awq").needs.work
    large = step_of(SEVENTY_B, USUAL, "awq").needs.work

    assert time_limit_s(tiny) == 86400.0
    assert time_limit_s(large) > 60 * 86400
    assert time_limit_s(()) == 86400.0


def test_stages_on_the_host_are_not_done_by_the_gpu() -> None:
    instance = find_instance("ml.p5.48xlarge")
    step = step_of(EIGHT_B, USUAL, "awq", gpus=1, env={})
    machine = known(machine_for(step, instance, accelerator_of(instance)))
    products = {"stage": "s", "matmul_flops": 1e15}

    on_gpu = stage_seconds(Work(**products), machine)
    assert on_gpu < stage_seconds(Work(**products, on_host=True), machine)


STEP = step_of(EIGHT_B, USUAL, "awq")
ESTIMATED = estimated_seconds(STEP, machine_for(STEP, HERE, None))


def past(estimated_s: float, seconds: float, **other: Any) -> PastRun:
    given = {
        "method": "llmcompressor/awq",
        "kind": "cpu",
        "device": "avx512_bf16",
        "size_bytes": EIGHT_B.weight_bytes,
    }
    return PastRun(estimated_s=estimated_s, seconds=seconds, **(given | other))


def told_run(run: dict[str, Any]) -> PastRun:
    """Make a run of the corpus."""
    other = {key: value for key, value in run.items() if key in ("method", "kind", "device")}
    estimated_s = run.get("estimated_s", ESTIMATED * run.get("estimated", 0))
    return past(estimated_s, run.get("seconds", ESTIMATED * run.get("took", 0)), **other)


@cases("corrections")
def test_past_runs_correct_by_method_device_and_size(
    runs: tuple[dict[str, Any], ...], scale: float | None
) -> None:
    timing = timing_of(STEP, machine_for(STEP, HERE, None), tuple(map(told_run, runs)))

    assert timing.origin == ("estimate" if scale is None else "past")
    assert timing.seconds == pytest.approx(ESTIMATED * (scale or 1.0))


def test_without_amounts_past_runs_of_about_the_size_tell() -> None:
    needs = Estimate(method="vllm-cache", size_bytes=16_000_000_000)
    step = Step(name="compile", tool="vllm-cache", gives="compiled", needs=needs)
    machine = machine_for(step, HERE, None)
    small = past(0.0, 40.0, method="vllm-cache", size_bytes=8_000_000)
    alike = past(0.0, 400.0, method="vllm-cache", size_bytes=15_000_000_000)

    elsewhere = replace(alike, kind="nvidia", device="A10G")

    assert timing_of(step, machine, (small, elsewhere)).origin == ""
    assert timing_of(step, machine, (small, alike)).seconds == 400.0


def test_a_run_is_read_back_as_it_was_labelled() -> None:
    machine = machine_for(STEP, HERE, None)
    found = past_run(label_of_run(STEP, machine)["effort"], 77.0)

    assert found == past(round(ESTIMATED, 1), 77.0)
    assert timing_of(STEP, machine, (found,)).seconds == pytest.approx(ESTIMATED / 5)


def test_steps_of_outside_packages_are_known_by_tool_and_input_size() -> None:
    file = ModelFile(path="w", role="weights", content=Inline(b"x" * 1000))
    given = {"model": StepInput(files=(file,))}
    step = Step(name="quantize", tool="demo", gives="model", inputs=given)
    machine = machine_for(step, HERE, None)
    found = known(past_run(label_of_run(step, machine)["effort"], 12.0))

    assert (found.method, found.size_bytes, found.estimated_s) == ("demo/quantize", 1000, 0.0)
    assert timing_of(step, machine, (found,)).seconds == 12.0


@cases("labels")
def test_a_strangers_label_is_no_run(label: str) -> None:
    assert past_run(label, 1.0) is None


@pytest.mark.parametrize("label", ["{" * 500, '"\ud800"'], ids=["deep", "half a surrogate pair"])
def test_a_label_that_no_reader_takes_is_no_run(label: str) -> None:
    assert past_run(label, 1.0) is None


# docs/benchmarks.md: 120 conversations of at most 256 tokens, 2026-11-21
@pytest.mark.parametrize(("epochs", "cpu_s"), [(3, 36.1), (8, 78.8)])
def test_training_a_head_is_within_twice_what_was_measured(epochs: int, cpu_s: float) -> None:
    asked = HeadTraining(
        method="eagle3",
        speculative_tokens=3,
        layers=1,
        aux_layers=(1, 2, 3),
        draft_vocab_size=2048,
        epochs=epochs,
        batch_tokens=512,
        max_tokens=256,
    )
    profile = profile_of(RUNS[0])
    file = ModelFile(
        path="t", role="other", content=Inline(b"x" * 68_000), sha256="7" * 64
    )  # 17,000 tokens
    texts = TrainingFiles(files=(file,), count=120)
    model = model_of(LLAMA_3_8B)
    tool = ToolFacts(name="draft-heads", worker="ab" * 32, requirements="cd" * 32, packages={})
    step = training_step(model, profile, texts, asked, None, tool)

    machine = machine_for(step, HERE, None)
    assert 0.5 <= estimated_seconds(step, machine) / cpu_s <= 2.0
    assert step.needs.method == "draft-heads/eagle3"


def seconds_of(work: tuple[Work, ...], name: str, **more: Any) -> float:
    needs = Estimate(work=work)
    return seconds_on(name, Step(name="s", tool="t", gives="model", needs=needs, **more))


def test_answers_read_all_weights_for_each_token() -> None:
    def seconds(answer_tokens: int) -> float:
        texts, read_bytes = TextAmounts(count=1000, tokens=100_000), EIGHT_B.weight_bytes
        how: dict[str, Any] = {
            "answer_tokens": answer_tokens,
            "read_bytes": read_bytes,
            "float32": False,
        }
        return seconds_of(answering_work(EIGHT_B, texts, **how), "ml.g5.2xlarge", gpus=1)

    assert 3600 < seconds(512) < 4 * 3600
    assert 1.8 < seconds(512) / seconds(256) < 2.0


def test_evaluating_takes_longer_with_more_texts_and_larger_models() -> None:
    asked: dict[str, Any] = {"noise_texts": 8, "prompts": 8, "answer_tokens": 32, "float32": False}

    def seconds(profile: ModelProfile, texts: TextAmounts) -> float:
        work = comparing_work(profile, texts, read_bytes=2 * profile.weight_bytes, **asked)
        return seconds_of(work, "ml.m7i.8xlarge", env={})

    few, many = TextAmounts(count=8, tokens=4096), TextAmounts(count=64, tokens=32768)
    assert seconds(EIGHT_B, few) < seconds(EIGHT_B, many) < seconds(SEVENTY_B, many)


ARCHITECTURES = {
    "Mixtral 8x7B": zoo.mixtral(),
    "Qwen3 30B-A3B": zoo.qwen3_moe(),
    "GPT-OSS 20B": zoo.gpt_oss(),
    "DeepSeek-V3": zoo.deepseek_v3(),
    "Falcon 7B": zoo.config_only(zoo.FALCON_7B),
    "GPT-NeoX 20B": zoo.config_only(zoo.GPT_NEOX_20B),
    "Gemma-3 4B": zoo.config_only(zoo.GEMMA_3_4B),
    "Phi-2": zoo.config_only(zoo.PHI_2),
}


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_every_architecture_gets_an_order_of_its_methods(name: str) -> None:
    profile = make_profile(ARCHITECTURES[name])[0]
    none = TextAmounts(count=0, tokens=0)
    texts = {"fp8": none, "smoothquant": USUAL, "gptq": USUAL, "awq": USUAL}
    took = {
        method: seconds_on("ml.r7i.8xlarge", step_of(profile, given, method, env={}))
        for method, given in texts.items()
    }

    assert 0 < took["fp8"] < took["smoothquant"] < took["gptq"]
    assert took["smoothquant"] < took["awq"] < 3e8
    [work] = [one for one in step_of(profile, USUAL, "awq").needs.work if one.stage == "quantizing"]
    assert len(work.units) == profile.layers + 2
    assert all(unit >= 0 for unit in work.units)

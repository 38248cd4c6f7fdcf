"""Types of cache and experts that a version of an engine has no kernel for."""

from __future__ import annotations

import pytest

from packager.core.errors import PlanRejected
from packager.engines.capability import check_capability
from packager.engines.rules import Facts
from tests.support.cases import cases_of
from tests.support.headers import LLAMA_3_8B, model_of, plan_of

cases = cases_of(__file__)


@cases("what_no_kernel_computes_is_refused")
def test_what_no_kernel_computes_is_refused(
    engine: str, version: str, dtype: str, facts: Facts, code: str
) -> None:
    found = check_capability(engine, engine, version, {"kv-cache-dtype": dtype}, facts)
    assert [one.code for one in found] == ([code] if code else [])


@cases("a_backend_computes_one_kind_of_attention_on_some_devices")
def test_a_backend_computes_one_kind_of_attention_on_some_devices(
    backend: str, facts: Facts, told: str
) -> None:
    found = check_capability("vLLM", "vllm", "0.33.0", {"attention-backend": backend}, facts)
    messages = [one.message for one in found]
    assert [told in one for one in messages] == ([True] if told else [])


@pytest.mark.parametrize(
    ("version", "backend", "weights", "capability", "told"),
    [
        ("0.33.0", "flashinfer_trtllm", "fp8_w8a8", 9.0, "on a device of compute capability 9"),
        ("0.33.0", "flashinfer_trtllm", "fp8_w8a8", 10.0, ""),
        ("0.33.0", "deep_gemm", "fp8_w8a8", 8.9, "on a device of compute capability 8.9"),
        ("0.20.1", "deep_gemm", "fp8_w8a8", 12.0, "on a device of compute capability 12"),
        ("0.33.0", "deep_gemm", "fp8_w8a8", 12.0, ""),  # since 0.24
        ("0.33.0", "cutlass", "nvfp4", 9.0, "on a device of compute capability 9"),
        ("0.33.0", "marlin", "nvfp4", 8.0, ""),
        ("0.33.0", "marlin", "nvfp4", 7.0, "on a device of compute capability 7"),
        ("0.33.0", "flashinfer_cutlass", "", 8.0, "on a device of compute capability 8"),
        ("0.33.0", "auto", "fp8_w8a8", 7.0, ""),
        ("0.33.0", "aiter", "fp8_w8a8", 9.0, ""),  # of another platform: not judged
        ("0.15.1", "flashinfer_trtllm", "fp8_w8a8", 9.0, ""),  # no version to read it from
        ("0.33.0", "flashinfer_trtllm", "fp8_w8a8", 6.1, ""),  # no device that was asked
    ],
)
def test_a_backend_computes_experts_of_one_format_on_some_devices(
    version: str, backend: str, weights: str, capability: float, told: str
) -> None:
    facts: Facts = {
        "experts": 64,
        "weight_format": weights,
        "compute_capability": capability,
        "device": "nvidia",
    }

    found = check_capability("vLLM", "vllm", version, {"moe-backend": backend}, facts)
    dense = check_capability(
        "vLLM", "vllm", version, {"moe-backend": backend}, facts | {"experts": 0}
    )

    assert [(one.code, told in one.message) for one in found] == (
        [("experts-unsupported", True)] if told else []
    )
    assert list(dense) == []


@pytest.mark.parametrize(
    ("version", "options", "capability", "refused"),
    [
        ("0.5.5", {"attention-backend": "trtllm_mla"}, 9.0, ["attention-backend"]),
        ("0.5.5", {"attention-backend": "trtllm_mla"}, 10.0, []),
        ("0.5.14", {"attention-backend": "trtllm_mha"}, 9.0, ["attention-backend"]),
        ("0.5.23", {"attention-backend": "trtllm_mha"}, 9.0, []),  # since 0.5.19
        ("0.5.23", {"attention-backend": "cutedsl_mla"}, 12.0, ["attention-backend"]),
        ("0.5.23", {"prefill-attention-backend": "trtllm_mha"}, 8.9, ["prefill-attention-backend"]),
        (
            "0.5.10",
            {"attention-backend": "trtllm_mha", "prefill-attention-backend": "fa3"},
            9.0,
            [],
        ),
        (
            "0.5.14",
            {"enable-deepseek-v4-fp4-indexer": "true"},
            9.0,
            ["enable-deepseek-v4-fp4-indexer"],
        ),
        (
            "0.5.14",
            {"enable-deepseek-v4-fp4-indexer": True},
            9.0,
            ["enable-deepseek-v4-fp4-indexer"],
        ),
        ("0.5.18", {"enable-deepseek-v4-fp4-indexer": "true"}, 12.0, []),
        ("0.5.23", {"kv-cache-dtype": "mxfp8"}, 9.0, ["kv-cache-dtype"]),
        ("0.5.23", {"quantization": "nvfp4_online"}, 12.0, ["quantization"]),
        ("0.5.23", {"moe-a2a-backend": "flashinfer_megamoe"}, 9.0, ["moe-a2a-backend"]),
        ("0.5.23", {"attention-backend": "fa3"}, 9.0, []),
    ],
)
def test_sglang_refuses_values_on_devices(
    version: str, options: dict[str, str | bool], capability: float, refused: list[str]
) -> None:
    facts: Facts = {"compute_capability": capability, "device": "nvidia"}

    found = list(check_capability("SGLang", "sglang", version, options, facts))

    assert [one.code for one in found] == ["option-not-for-device"] * len(refused)
    assert all(name in one.message for name, one in zip(refused, found, strict=True))


def test_a_plan_asks_for_the_cache() -> None:
    with pytest.raises(PlanRejected) as refused:
        options = {"kv-cache-dtype": "fp8_inc"}
        plan_of(model_of(LLAMA_3_8B), "g6e.xlarge", family="vllm", engine_options=options)
    assert "kv-dtype-unsupported" in [one.code for one in refused.value.findings]

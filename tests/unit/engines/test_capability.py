"""Types of cache and experts that a version of an engine has no kernel for."""

from __future__ import annotations

import pytest

from packager.engines.capability import check_capability
from packager.engines.rules import Facts
from packager.errors import PlanRejected
from tests.support.headers import LLAMA_3_8B, model_of, plan_of

DENSE: Facts = {"attention_kind": "heads"}
MLA: Facts = {"attention_kind": "mla"}
SPARSE: Facts = {"attention_kind": "mla-sparse"}
A100: Facts = {"device": "nvidia", "compute_capability": 8.0}
H100: Facts = {"device": "nvidia", "compute_capability": 9.0}
RTX: Facts = {"device": "nvidia", "compute_capability": 12.0}
EXPERTS: Facts = {"weight_format": "fp8_w8a8", "experts": 128}


@pytest.mark.parametrize(
    ("engine", "version", "dtype", "facts", "code"),
    [
        ("vllm", "0.21.0", "fp8_ds_mla", DENSE, "kv-dtype-unsupported"),
        ("vllm", "0.33.0", "fp8_ds_mla", DENSE, "kv-dtype-unsupported"),
        ("vllm", "0.33.0", "nvfp4_ds_mla", DENSE, "kv-dtype-unsupported"),
        ("vllm", "0.33.0", "octave_k3v4", DENSE, "kv-dtype-unsupported"),
        ("vllm", "0.21.0", "fp8_inc", DENSE, "kv-dtype-unsupported"),
        ("vllm", "0.33.0", "fp8_inc", DENSE | A100, "kv-dtype-unsupported"),
        ("vllm", "0.33.0", "turboquant_k8v4", MLA, "kv-dtype-unsupported"),
        ("vllm", "0.33.0", "fp8_e5m2", MLA, "kv-dtype-unsupported"),
        ("vllm", "0.33.0", "fp8_ds_mla", MLA, "kv-dtype-unsupported"),
        ("vllm", "0.33.0", "fp8_ds_mla", SPARSE | H100, ""),
        ("vllm", "0.33.0", "auto", SPARSE | A100, "attention-unsupported"),
        ("vllm", "0.21.0", "auto", SPARSE | RTX, "attention-unsupported"),
        ("vllm", "0.33.0", "auto", SPARSE | RTX, ""),
        ("vllm", "0.33.0", "fp8_e5m2", DENSE, ""),
        ("vllm", "0.33.0", "fp8_ds_mla", {}, ""),
        ("vllm", "0.33.0", "fp8_ds_mla", DENSE | {"device": "amd"}, ""),
        ("vllm", "0.11.0", "fp8_inc", DENSE, ""),  # before its backends listed anything
        ("vllm", "0.33.0", "fp9", DENSE, ""),  # the parser's to refuse
        ("sglang", "0.5.5", "auto", EXPERTS | A100, "format-unsupported"),
        ("sglang", "0.5.23", "auto", EXPERTS | A100, "format-unsupported"),
        ("sglang", "0.5.23", "auto", EXPERTS | H100, ""),
        ("sglang", "0.5.23", "auto", EXPERTS | A100 | {"experts": 0}, ""),
        ("sglang", "0.5.23", "auto", EXPERTS | A100 | {"weight_format": "w4a16"}, ""),
        ("vllm", "0.33.0", "auto", EXPERTS | A100, ""),
    ],
)
def test_what_no_kernel_computes_is_refused(
    engine: str, version: str, dtype: str, facts: Facts, code: str
) -> None:
    found = check_capability(engine, engine, version, {"kv-cache-dtype": dtype}, facts)
    assert [one.code for one in found] == ([code] if code else [])


@pytest.mark.parametrize(
    ("backend", "facts", "told"),
    [
        ("FLASHMLA", DENSE | H100, "vLLM 0.33.0: FLASHMLA of 'attention-backend' does not compute"),
        ("FLASH_ATTN", MLA | H100, "vLLM 0.33.0: FLASH_ATTN of 'attention-backend' does not"),
        ("CUTLASS_MLA", MLA | H100, "on a device of compute capability 9"),
        ("cutlass_mla", MLA | {"compute_capability": 10.0}, ""),
        (
            "FLASH_ATTN",
            DENSE | {"compute_capability": 7.5},
            "on a device of compute capability 7.5",
        ),
        ("FLASHINFER", DENSE, ""),
        ("FLASHINFER", {"attention_kind": ""}, ""),
        ("ROCM_ATTN", DENSE | H100, ""),  # of other devices
    ],
)
def test_a_backend_computes_one_kind_of_attention_on_some_devices(
    backend: str, facts: Facts, told: str
) -> None:
    found = check_capability("vLLM", "vllm", "0.33.0", {"attention-backend": backend}, facts)
    messages = [one.message for one in found]
    assert [told in one for one in messages] == ([True] if told else [])


def test_a_plan_asks_for_the_cache() -> None:
    with pytest.raises(PlanRejected) as refused:
        options = {"kv-cache-dtype": "fp8_inc"}
        plan_of(model_of(LLAMA_3_8B), "g6e.xlarge", family="vllm", engine_options=options)
    assert "kv-dtype-unsupported" in [one.code for one in refused.value.findings]

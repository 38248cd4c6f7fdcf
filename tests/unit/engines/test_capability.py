"""Types of cache and experts that a version of an engine has no kernel for."""

from __future__ import annotations

import pytest

from packager.core.errors import PlanRejected
from packager.engines.capability import check_capability
from packager.engines.rules import Facts
from tests.support.cases import cases
from tests.support.headers import LLAMA_3_8B, model_of, plan_of


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


@cases("a_backend_computes_experts_of_one_format_on_some_devices")
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


@cases("sglang_refuses_values_on_devices")
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

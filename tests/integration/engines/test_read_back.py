"""Random plans of every family, read back by parsers that are not ours.

What is expected is spelled out here a second time, on purpose: every value that was
planned arrives under its name, and nothing else does.
"""

from __future__ import annotations

from typing import Any

import javaproperties
from hypothesis import given
from hypothesis import strategies as st

from packager.core.plan import Plan
from tests.support.engine_plans import FP8_AT_LOAD
from tests.unit.engines.test_read_back import (
    OFFLINE,
    as_text,
    parsed,
    plans,
    render,
    speculative,
    told,
    where,
)

LMI_OWN = {"DJL_OFFLINE", "OPT_OUT_TRACKING", "SERVING_MODEL_STORE"}


@given(st.sampled_from(["lmi", "lmi-27", "lmi-16"]).flatmap(plans))
def test_the_properties_of_lmi(plan: Plan) -> None:
    config = render(plan)
    env = {
        f"option.{'entryPoint' if name == 'OPTION_ENTRYPOINT' else name[7:].lower()}": value
        for name, value in config.env.items()
        if name.startswith("OPTION_") and name != "OPTION_ENGINE"
    }
    if plan.weights == "baked":
        read = javaproperties.loads(config.files[0].data.decode("latin-1"))
        assert read.pop("engine") == "Python"
        assert read == env
        assert {name for name in config.env if not name.startswith("OPTION_")} == OFFLINE | LMI_OWN
    else:
        assert config.env["OPTION_ENGINE"] == "Python"
    medusa = [file for file in config.files if file.path == f"{where(plan)[1]}/config.json"]
    assert len(config.files) == len(medusa) + (plan.weights == "baked")
    expected: dict[str, Any] = {
        "option.tensor_parallel_degree": plan.tp_degree,
        "option.max_rolling_batch_size": plan.shape.max_batch,
        "option.max_model_len": plan.shape.max_total_tokens,
        "option.dtype": plan.dtype,
        "option.gpu_memory_utilization": 0.9,
        "option.served_model_name": plan.served_name,
        "option.trust_remote_code": "false",
        "option.enable_expert_parallel": "true" if plan.expert_parallel else None,
        "option.max_rolling_batch_prefill_tokens": plan.max_prefill_tokens,
        "option.quantize": "fp8" if plan.quantization == FP8_AT_LOAD else None,
        "option.kv_cache_dtype": None if plan.kv_dtype == "auto" else plan.kv_dtype,
        "option.speculative_config": speculative(plan),
        "option.rolling_batch": "disable",
        "option.async_mode": "true",
        "option.entryPoint": "djl_python.lmi_vllm.vllm_async_service",
    }
    if plan.container.release == "16":
        expected |= {
            "option.rolling_batch": "vllm",
            "option.async_mode": None,
            "option.entryPoint": None,
        }

    assert parsed(env) == as_text(told(expected))


@given(plans("neuron-tgi"))
def test_the_variables_of_tgi_on_neuron(plan: Plan) -> None:
    shape = plan.shape

    assert render(plan).env == as_text(
        {
            "HF_HUB_OFFLINE": 1,
            "TRANSFORMERS_OFFLINE": 1,
            "HF_MODEL_ID": where(plan)[0],
            "HF_NUM_CORES": plan.tp_degree,
            "HF_AUTO_CAST_TYPE": plan.dtype,
            "MAX_BATCH_SIZE": shape.max_batch,
            "MAX_INPUT_TOKENS": shape.max_input_tokens,
            "MAX_TOTAL_TOKENS": shape.max_total_tokens,
            "MAX_BATCH_PREFILL_TOKENS": shape.max_batch * shape.max_input_tokens,
        }
    )

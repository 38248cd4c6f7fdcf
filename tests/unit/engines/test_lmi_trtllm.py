"""LMI with TensorRT-LLM inside: what it is told with an engine and without one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import javaproperties
import pytest

from packager.compile.trtllm import builds_engines
from packager.core.artifact import Artifacts
from packager.core.plan import Plan
from packager.engines.lmi.family import LmiFamily
from packager.findings import errors_in
from tests.support.engine_plans import AWQ, MEDUSA_V1, PACKED, plan_for

ENGINE = plan_for("lmi-trt", compiler="tensorrt_llm")
PYTORCH = plan_for("lmi-trt")


def errors(plan: Plan) -> list[str]:
    return [finding.code for finding in errors_in(tuple(LmiFamily().check(plan)))]


def properties(plan: Plan) -> dict[str, str]:
    files = LmiFamily().render(plan, Artifacts(model=())).files
    read: dict[str, str] = javaproperties.loads(files[0].data.decode())
    return read


@pytest.mark.parametrize(
    ("version", "builds"),
    [
        ("0.20.0", False),  # a closed toolkit
        ("0.21.0", True),
        ("1.2.0rc5", True),
        ("1.2.9", True),
        ("1.3.0.dev20260101+gabc", False),
        ("1.3.0rc1", False),
        ("1.3", False),
        ("1.3.0", False),
        ("nightly", False),
    ],
)
def test_nothing_is_built_for_candidates_of_the_release_that_ends_engines(
    version: str, builds: bool
) -> None:
    assert builds_engines(replace(ENGINE.container, engine_version=version)) == builds


def test_an_engine_is_served_from_where_it_is_baked() -> None:
    assert errors(ENGINE) == []
    assert properties(ENGINE) == {
        "engine": "Python",
        "option.async_mode": "true",
        "option.rolling_batch": "disable",
        "option.entryPoint": "djl_python.lmi_trtllm.trtllm_async_service",
        "option.model_id": "/opt/packager/compiled",
        "option.tensor_parallel_degree": "4",
        "option.max_rolling_batch_size": "16",
        "option.max_input_len": "4096",
        "option.max_seq_len": "8192",
        "option.max_num_tokens": "8192",
        "option.dtype": "bfloat16",
        "option.free_gpu_memory_fraction": "0.9",
        "option.trust_remote_code": "false",
    }


def test_without_an_engine_the_pytorch_backend_serves_the_checkpoint() -> None:
    told = properties(PYTORCH)

    assert errors(PYTORCH) == []
    assert told["option.backend"] == "pytorch"  # or LMI would build an engine at every start
    assert "option.model_id" not in told


def test_the_environment_says_the_same() -> None:
    env = LmiFamily().render(ENGINE, Artifacts(model=())).env

    assert env["OPTION_MODEL_ID"] == "/opt/packager/compiled"
    assert env["OPTION_MAX_SEQ_LEN"] == "8192"
    assert env["SERVING_MODEL_STORE"] == "/opt/packager/model"
    assert "HF_MODEL_ID" not in env


def test_options_go_to_whoever_reads_them() -> None:
    asked = (("gemm-plugin", "disable"), ("enable-block-reuse", "true"))
    told = properties(plan_for("lmi-trt", compiler="tensorrt_llm", engine_options=asked))

    assert told["option.enable_block_reuse"] == "true"
    assert "option.gemm_plugin" not in told  # of the builder


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"draft": MEDUSA_V1}, "draft-unsupported"),
        ({"pp_degree": 2}, "pipeline-unsupported"),
        ({"quantization": PACKED}, "quantize-unsupported"),
        ({"engine_options": (("swap_space", "4"),)}, "key-dropped"),
        ({"engine_options": (("gemm_plugin", "auto"),)}, "key-dropped"),
        ({"engine_options": (("max_seq_len", "4"),)}, "options-conflict"),
        ({"engine_options": (("use_cuda_graph", "yes"),)}, "value-refused"),
        (
            {"compiler": "tensorrt_llm", "engine_options": (("gemm_plugin", "int4"),)},
            "value-refused",
        ),
        (
            {"compiler": "tensorrt_llm", "engine_options": (("use_cuda_graph", "true"),)},
            "key-dropped",
        ),
    ],
)
def test_what_it_would_drop_or_refuse_is_an_error(changes: dict[str, Any], code: str) -> None:
    assert errors(plan_for("lmi-trt", **changes)) == [code]


def test_a_checkpoint_that_is_quantized_is_its_own_business() -> None:
    assert errors(plan_for("lmi-trt", quantization=AWQ)) == []


def test_a_share_of_the_whole_gpu_is_refused() -> None:
    """Its own is of what the weights leave: 0.3 of 80 GiB was planned, and 34 would be taken."""
    assert errors(plan_for("lmi-trt", gpu_memory_utilization=0.3)) == ["no-gpu-memory"]

"""Requests that documents become, planned for released models of many architectures."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from packager.catalog.accelerators import accelerator_of
from packager.catalog.containers import find_container
from packager.core.model import ModelFiles
from packager.planning.planner import make_plan
from packager.sagemaker.optimization import make_job
from packager.sagemaker.settings import JobSettings
from tests.support import zoo
from tests.support.doubles.containers import FAMILIES, with_traits
from tests.support.headers import LLAMA_3_8B, LLAMA_3_70B, facts_of, model_of
from tests.support.places import ROOT
from tests.support.sagemaker_bodies import (
    AWQ,
    DJL,
    MODELS,
    compilation,
    quantization,
    sharding,
)

LMI = {"ModelQuantizationConfig": {"Image": f"{DJL}:0.36.0-lmi28.0.0-cu130"}}


def _asked(body: dict[str, Any]) -> dict[str, Any]:
    job = make_job(body, JobSettings(), find_model=MODELS.get)
    read: dict[str, Any] = json.loads(job.files["request.json"])
    return {name: value for name, value in read.items() if name not in ("model", "region")}


def _instance(body: dict[str, Any], name: str) -> dict[str, Any]:
    return {**body, "DeploymentInstanceType": name}


@pytest.mark.parametrize(
    ("model", "body", "planned"),
    [
        (lambda: model_of(LLAMA_3_8B), AWQ, ("vllm", 1, "awq")),
        (
            lambda: model_of(LLAMA_3_8B),
            {**AWQ, "OptimizationConfigs": [LMI]},
            ("lmi", 1, "awq"),
        ),
        (
            lambda: model_of(LLAMA_3_70B),
            _instance(
                quantization(OPTION_QUANTIZE="fp8", OPTION_TENSOR_PARALLEL_DEGREE="max"),
                "ml.p5.48xlarge",
            ),
            ("vllm", 8, "fp8"),
        ),
        (
            zoo.mixtral,
            quantization(SM_NUM_GPUS="4", MAX_TOTAL_TOKENS="16384", MAX_INPUT_LENGTH="8000"),
            ("vllm", 4, "awq"),
        ),
        (
            zoo.qwen3_moe,
            _instance(
                quantization(OPTION_QUANTIZE="fp8", OPTION_FP8_SCHEME="FP8_DYNAMIC"),
                "ml.g6e.12xlarge",
            ),
            ("vllm", None, "fp8"),
        ),
        (
            zoo.gpt_oss,
            _instance(sharding(OPTION_TENSOR_PARALLEL_DEGREE="2"), "ml.p5.48xlarge"),
            ("vllm", 2, "mxfp4"),
        ),
        (
            lambda: zoo.config_only(zoo.COMMAND_R),
            _instance(sharding(OPTION_TENSOR_PARALLEL_DEGREE="8"), "ml.p5.48xlarge"),
            ("vllm", 8, None),
        ),
        (
            lambda: model_of(LLAMA_3_8B),
            compilation(
                "ml.inf2.48xlarge", OPTION_TENSOR_PARALLEL_DEGREE="8", OPTION_N_POSITIONS="4096"
            ),
            ("neuron", 8, None),
        ),
    ],
    ids=[
        "llama-awq",
        "lmi",
        "llama-70b-fp8",
        "mixtral",
        "qwen3-moe",
        "gpt-oss",
        "cohere",
        "neuron",
    ],
)
def test_a_document_is_planned(
    model: Callable[[], ModelFiles],
    body: dict[str, Any],
    planned: tuple[str, int | None, str | None],
) -> None:
    asked = _asked(body)
    name, version = asked.pop("instance"), asked.get("container_version")
    asked.pop("compile", None)  # tests of compilers have its plans
    facts = facts_of(model(), name, **asked)
    container = find_container(asked.get("family"), facts.instance.kind, version, None, name)
    facts = replace(facts, container=with_traits(container))
    plan = make_plan(facts, FAMILIES[container.family], accelerator_of=accelerator_of)

    family, degree, method = planned
    assert plan.container.family == family
    assert degree in (None, plan.tp_degree)
    assert (plan.quantization.method if plan.quantization else None) == method


def test_mixtral_with_medusa_heads_and_awq_is_asked_for_as_it_was_described() -> None:
    body = json.loads((ROOT / "examples/optimize/medusa-awq.json").read_text(encoding="utf-8"))

    assert _asked(body) == {
        "instance": "ml.g5.12xlarge",
        "family": "tgi",
        "container_version": "2.7.0-tgi3.3.6-gpu-py311-cu124-ubuntu22.04",
        "quantize": "awq",
        "draft": "medusa:text-generation-inference/Mixtral-8x7B-Instruct-v0.1-medusa",
        "tp_degree": 4,
        "max_input_tokens": 8000,
        "max_total_tokens": 16384,
        "max_prefill_tokens": 16384,
    }

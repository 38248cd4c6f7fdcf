"""What the rules know to be impossible is refused when the document comes, and nothing else is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from packager.addons.deploy.sagemaker.api_refusals import ValidationRefused
from packager.addons.server.sagemaker.optimization import make_job
from packager.addons.server.sagemaker.settings import JobSettings
from tests.support.cases import cases
from tests.support.sagemaker_bodies import (
    AWQ,
    DJL,
    EAGLE_BUILT_IN_DATA,
    MODELS,
    quantization,
    sharding,
)

TGI = "763104351884.dkr.ecr.us-east-1.amazonaws.com/huggingface-pytorch-tgi-inference"
TGI_33 = f"{TGI}:2.7.0-tgi3.3.6-gpu-py311-cu124-ubuntu22.04"
LMI_28 = f"{DJL}:0.36.0-lmi28.0.0-cu130"
LLAMA = {"architectures": ["LlamaForCausalLM"]}


def _refusal(body: dict[str, Any], config: Mapping[str, Any] | None = None, **settings: Any) -> str:
    with pytest.raises(ValidationRefused) as caught:
        _make(body, config, **settings)
    return caught.value.message


def _make(body: dict[str, Any], config: Mapping[str, Any] | None = None, **settings: Any) -> None:
    make_job(
        body, JobSettings(**settings), find_model=MODELS.get, read_config=lambda reference: config
    )


def _with(image: str, **variables: str) -> dict[str, Any]:
    config = {"OverrideEnvironment": variables, "Image": image}
    return {**AWQ, "OptimizationConfigs": [{"ModelQuantizationConfig": config}]}


@cases("rules")
def test_what_a_rule_refuses_is_refused_before_there_is_a_job(
    image: str | None, variables: dict[str, str], words: str | None
) -> None:
    body = _with({"tgi": TGI_33, "lmi": LMI_28}[image], **variables) if image else None
    body = body or quantization(**variables)
    if words:
        assert words in _refusal(body)
    else:
        _make(body)


@cases("heads_that_can_be_trained_are")
def test_heads_that_can_be_trained_are(name: str) -> None:
    _make(EAGLE_BUILT_IN_DATA, {"architectures": [name]})


@pytest.mark.parametrize(
    "config",
    [None, {}, {"architectures": []}, {"architectures": 7}, {"architectures": [["x"]]}, LLAMA],
    ids=["unread", "empty", "none", "number", "list", "llama"],
)
def test_a_config_that_says_nothing_refuses_nothing(config: Mapping[str, Any] | None) -> None:
    _make(EAGLE_BUILT_IN_DATA, config)


def test_a_head_for_a_quantized_model_is_refused() -> None:
    config = {**LLAMA, "quantization_config": {"quant_method": "mx\x1bfp4"}}

    message = _refusal(EAGLE_BUILT_IN_DATA, config)

    assert "EAGLE heads are trained on unquantized weights" in message
    assert message.isprintable()


def test_the_config_is_read_for_heads_alone() -> None:
    asked: list[str] = []

    def read(reference: str) -> None:
        asked.append(reference)

    make_job(AWQ, JobSettings(), read_config=read)
    make_job(EAGLE_BUILT_IN_DATA, JobSettings(), find_model=MODELS.get, read_config=read)

    assert asked == ["s3://models/qwen3-32b/"]


def test_on_the_operators_own_machine_and_image_the_rules_of_others_do_not_hold() -> None:
    body = _with(TGI_33, OPTION_SPECULATIVE_DRAFT_MODEL="eagle:s3://models/head/")

    _make(body, instance="local", base="embedded:vllm-cpu")
    _make(sharding(OPTION_TENSOR_PARALLEL_DEGREE="4"), instance="local")
    _make(quantization(OPTION_QUANTIZE="mxfp4"), base="registry.example/own:1")


def test_an_unknown_instance_of_the_operator_is_refused_with_the_document() -> None:
    assert "ml.g5.huge" in _refusal(AWQ, instance="ml.g5.huge")


def test_a_method_with_one_scheme_that_goes_is_taken() -> None:
    """AMD's devices have no kernel for FP8 weights alone; the plan multiplies in FP8."""
    _make(quantization(OPTION_QUANTIZE="fp8"), instance="Standard_ND96isr_MI300X_v5")

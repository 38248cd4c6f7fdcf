"""Multi-token-prediction heads: what config.json declares, and what the headers have of it."""

from __future__ import annotations

from typing import Any

import pytest

from packager.core.model import TensorInfo
from packager.models.architectures.mtp import read_mtp
from tests.support.cases import cases, read_tables

DEEPSEEK = read_tables(__file__)["deepseek"]


def headers(*names: str) -> tuple[TensorInfo, ...]:
    return tuple(
        TensorInfo(name=name, dtype="BF16", shape=(4, 4), size=32, file="model.safetensors")
        for name in names
    )


@cases("the_tensors_of_a_declared_head_are_found")
def test_the_tensors_of_a_declared_head_are_found(
    config: dict[str, Any], names: tuple[str, ...], layout: str
) -> None:
    served = headers("model.embed_tokens.weight", "model.layers.0.mlp.up_proj.weight")

    head = read_mtp(config, (*served, *headers(*names)))

    assert tuple(one.name for one in head.tensors) == names
    assert (head.declared, head.layers, head.layout) == (1, 1, layout)
    assert (head.missing, head.problem, head.weight_bytes) == ((), "", 64)


@cases("a_declared_head_without_tensors_is_missing_by_name")
def test_a_declared_head_without_tensors_is_missing_by_name(
    config: dict[str, Any], missing: tuple[str, ...]
) -> None:
    head = read_mtp(config, headers("model.layers.0.mlp.up_proj.weight"))

    assert head.missing == missing
    assert (head.tensors, head.layers) == ((), 0)


def test_one_of_two_declared_layers_is_missing() -> None:
    config = DEEPSEEK | {"num_nextn_predict_layers": 2}

    head = read_mtp(config, headers("model.layers.61.enorm.weight"))

    assert head.missing == ("model.layers.62.*",)
    assert (head.declared, head.layers) == (2, 1)


def test_a_head_that_nothing_declares_is_still_found_where_engines_assume_it() -> None:
    config = {"model_type": "qwen3_next", "num_hidden_layers": 48}

    head = read_mtp(config, headers("mtp.fc.weight"))

    assert (head.declared, head.assumed, head.layers) == (0, 1, 1)
    assert read_mtp(config, headers("lm_head.weight")).missing == ()


@pytest.mark.parametrize("stated", [10**9, -1, "1", 1.0, True, [1], {"a": 1}])
def test_an_impossible_number_of_layers_is_a_problem_and_not_a_head(stated: object) -> None:
    config = DEEPSEEK | {"num_nextn_predict_layers": stated}

    head = read_mtp(config, headers("model.layers.61.enorm.weight"))

    assert (head.declared, head.layers, head.tensors, head.missing) == (0, 0, (), ())
    assert head.problem == f"num_nextn_predict_layers is {stated!r}, not a number from 0 to 64"


@cases("served_layers_and_other_parts_are_no_head")
def test_served_layers_and_other_parts_are_no_head(name: str) -> None:
    assert read_mtp(DEEPSEEK, headers(name[:200])).tensors == ()


def test_layers_behind_the_last_are_no_head_when_nothing_declares_one() -> None:
    config = {"model_type": "llama", "num_hidden_layers": 2}

    assert read_mtp(config, headers("model.layers.2.mlp.up_proj.weight")).tensors == ()


def test_the_head_of_gemma_4_is_a_checkpoint_of_its_own() -> None:
    config = {"model_type": "gemma4", "text_config": {"model_type": "gemma4_text"}}

    assert read_mtp(config, headers("lm_head.weight")).separate == "gemma4_assistant"


@pytest.mark.parametrize("config", [{}, {"text_config": 1, "model_type": []}, {"mtp_config": "x"}])
def test_a_config_without_a_head_has_none(config: dict[str, Any]) -> None:
    head = read_mtp(config, headers("model.layers.0.mlp.up_proj.weight"))

    assert (head.declared, head.layers, head.missing, head.problem) == (0, 0, (), "")

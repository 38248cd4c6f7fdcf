"""Headers of a quantized result against its source's: what is lost, renamed or of another shape."""

from __future__ import annotations

import math
from typing import Any

import pytest

from packager.core.model import TensorInfo
from packager.models.checkpoints.whole import describe_lost, lost_tensors
from tests.support.cases import cases_of, read_tables
from tests.support.quantized import Arriving

cases = cases_of(__file__)
TABLES = read_tables(__file__)

CONFIGS: dict[str, dict[str, Any]] = TABLES["configs"]
COMPRESSED = CONFIGS["compressed"]
Q = "model.layers.0.self_attn.q_proj"


def header(name: str, dtype: str, *shape: int) -> TensorInfo:
    size = math.prod(shape) * {"BF16": 2, "F16": 2, "F32": 4, "I32": 4, "I64": 8}.get(dtype, 1)
    return TensorInfo(name=name, dtype=dtype, shape=shape, size=size, file="model.safetensors")


def made_by(writer: str, outputs: int, inputs: int, module: str = Q) -> list[TensorInfo]:
    """Give the headers that a writer leaves of a matrix."""
    headers = Arriving(writer, {}, TABLES["writers"][writer]).pack(module, outputs, inputs)
    return [header(name, dtype, *shape) for name, (dtype, shape) in headers.items()]


SOURCE = [header(*row) for row in TABLES["source"]]
PLAIN = [SOURCE[0], SOURCE[2], SOURCE[3]]


@pytest.mark.parametrize(
    ("quantized", "config"),
    [
        *((made_by(writer, 256, 128), CONFIGS[of]) for writer, of in TABLES["written"].items()),
        ([SOURCE[1]], COMPRESSED),
        ([header(f"{Q}.blocks", "U8", 7)], {"quantization_config": {"quant_method": "other"}}),
    ],
    ids=[*TABLES["written"], "left as it was", "another tool's words"],
)
def test_declared_replacements_are_no_loss(
    quantized: list[TensorInfo], config: dict[str, Any]
) -> None:
    assert lost_tensors(SOURCE, [*PLAIN, *quantized], config) == ()


@cases("a_matrix_that_is_lost_or_changed_is_named", first=0, last=None)
def test_a_matrix_that_is_lost_or_changed_is_named(case: dict[str, Any]) -> None:
    made = made_by(case["writer"], case["outputs"], case["inputs"])[case["first"] : case["last"]]

    (lost,) = lost_tensors(SOURCE, [*PLAIN, *made], CONFIGS[case["config"]])

    assert lost.name == f"{Q}.weight"
    assert case["how"] in lost.how


def test_a_matrix_of_another_type_is_named() -> None:
    made = header(f"{Q}.weight", "F16", 256, 128)

    (lost,) = lost_tensors(SOURCE, [*PLAIN, made], COMPRESSED)

    assert "is F16, not BF16" in lost.how


@pytest.mark.parametrize(
    ("kept", "name"), [(PLAIN[1:], "model.embed_tokens.weight"), (PLAIN[:2], "model.norm.weight")]
)
def test_a_tensor_that_no_method_touches_must_stay(kept: list[TensorInfo], name: str) -> None:
    lost = lost_tensors(SOURCE, [*kept, *made_by("packed", 256, 128)], COMPRESSED)

    assert [one.name for one in lost] == [name]


def test_experts_under_other_names_are_lost() -> None:
    """Mixtral, as it came out of transformers 5: gate_proj where the source has w1."""
    path = "model.layers.0.block_sparse_moe.experts.0"
    source = [header(f"{path}.{name}.weight", "BF16", 64, 128) for name in ("w1", "w3")]
    made = [
        *made_by("fp8", 64, 128, f"{path}.gate_proj"),
        *made_by("fp8", 64, 128, f"{path}.up_proj"),
    ]

    lost = lost_tensors(source, made, COMPRESSED)

    assert [(one.name, one.how) for one in lost] == [
        (f"{path}.w1.weight", "is missing"),
        (f"{path}.w3.weight", "is missing"),
    ]


def test_a_dropped_mtp_layer_is_named_with_its_count() -> None:
    layer = [header(f"model.layers.2.part{number}.weight", "BF16", 4) for number in range(29)]

    lost = lost_tensors([*SOURCE, *layer], [*PLAIN, *made_by("packed", 256, 128)], COMPRESSED)

    assert describe_lost(lost, 33) == (
        "29 of the source's 33 tensors are lost or changed: "
        "model.layers.2.part0.weight is missing; model.layers.2.part1.weight is missing; "
        "model.layers.2.part2.weight is missing; model.layers.2.part3.weight is missing; "
        "model.layers.2.part4.weight is missing; and others"
    )


HEAD = header("lm_head.weight", "BF16", 512, 128)


@cases("a_head_is_left_out_only_where_config_ties_it", embeds=True)
def test_a_head_is_left_out_only_where_config_ties_it(
    config: dict[str, Any], embeds: bool, lost: list[str]
) -> None:
    made = [*PLAIN[not embeds :], *made_by("packed", 256, 128)]
    found = lost_tensors([*SOURCE, HEAD], made, COMPRESSED | config)

    assert [one.name for one in found] == lost


def fused(expert: int, *, inputs: int = 48) -> list[TensorInfo]:
    path = f"model.layers.0.mlp.experts.{expert}"
    gate_and_up = [
        one
        for part in ("gate_proj", "up_proj")
        for one in made_by("packed", 32, inputs, f"{path}.{part}")
    ]
    return [
        *gate_and_up,
        header(f"{path}.gate_proj.bias", "BF16", 32),
        header(f"{path}.up_proj.bias", "BF16", 32),
    ]


@pytest.mark.parametrize("shape", [(2, 64, 48), (2, 48, 64)], ids=["outputs first", "inputs first"])
@pytest.mark.parametrize(
    ("experts", "whole"),
    [
        ([*fused(0), *fused(1)], True),
        (fused(0), False),
        ([*fused(0), *fused(1)[3:]], False),
        ([*fused(0), *fused(1, inputs=96)], False),
        ([*fused(0), *fused(1)[:-1]], False),
    ],
    ids=["all", "one expert missing", "a gate missing", "another shape", "a bias missing"],
)
def test_experts_of_one_tensor_are_replaced_one_by_one(
    shape: tuple[int, ...], experts: list[TensorInfo], whole: bool
) -> None:
    path = "model.layers.0.mlp.experts"
    source = [
        header(f"{path}.gate_up_proj", "BF16", *shape),
        header(f"{path}.gate_up_proj_bias", "BF16", 2, 64),
    ]

    assert (lost_tensors(source, experts, COMPRESSED) == ()) is whole

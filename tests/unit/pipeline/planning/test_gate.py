"""Checkpoints that arrive quantized: what is inside is what config.json declares."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from packager.catalog.findings import TABLE
from packager.catalog.instances import find_instance
from packager.core.errors import PlanRejected
from packager.core.findings import Finding
from packager.core.model import ModelFiles, ScaleValues, TensorInfo
from packager.core.traits import UNKNOWN_ENGINE
from packager.models.architectures.profile import make_profile
from packager.models.architectures.quantized import read_quantization
from packager.models.checkpoints.gate import check_head, inspect_quantized, quantized_scales
from packager.optimize.drafts.models import check_model
from tests.support import quantized, zoo
from tests.support.cases import cases_of
from tests.support.headers import TINY, model_of, plan_of, tensor
from tests.support.quantized import FORMATS, Arriving, arriving, compressed, gpt_oss

cases = cases_of(__file__)

SMALL = TINY | {"num_hidden_layers": 1}
EXPLAINED = set(tomllib.loads(TABLE.read_text(encoding="utf-8")))
VALUES = ScaleValues(read_bytes=100, total_bytes=100)
Q_PROJ = "model.layers.2.self_attn.q_proj"


def codes(model: ModelFiles, values: ScaleValues | None = None) -> list[str]:
    return [finding.code for finding in inspect_quantized(model, values).findings]


def one(model: ModelFiles) -> Finding:
    (finding,) = inspect_quantized(model).findings
    assert finding.severity == "error"
    return finding


def without(model: ModelFiles, name: str) -> ModelFiles:
    kept = tuple(one for one in model.tensors if one.name != name)
    assert len(kept) == len(model.tensors) - 1
    return replace(model, tensors=kept)


def changed(model: ModelFiles, name: str, change: Callable[[TensorInfo], TensorInfo]) -> ModelFiles:
    tensors = tuple(change(one) if one.name == name else one for one in model.tensors)
    assert tensors != model.tensors
    return replace(model, tensors=tensors)


def widened(info: TensorInfo) -> TensorInfo:
    shape = (*info.shape[:-1], info.shape[-1] + 1) if info.shape else (2,)
    return tensor(info.name, info.dtype, shape)


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.id)
def test_a_sound_checkpoint_of_each_writer_passes(form: Arriving) -> None:
    assert codes(arriving(form)) == []


def test_sound_experts_of_gpt_oss_pass() -> None:
    assert codes(gpt_oss()) == []


def test_an_unquantized_model_passes() -> None:
    assert codes(model_of(TINY)) == []


@cases("a_packed_weight_without_its_scale_is_refused_by_name")
def test_a_packed_weight_without_its_scale_is_refused_by_name(form: str, part: str) -> None:
    finding = one(without(arriving(form), f"{Q_PROJ}.{part}"))

    assert finding.code == "quantization-scale-missing"
    if part != "weight.quant_state.bitsandbytes__nf4":
        said = "1 tensor is missing that packed weights need: model.layers.2.self_attn.q_proj."
        assert finding.message.startswith(said)


def test_missing_scales_are_counted_and_five_of_them_named() -> None:
    model = arriving("ct-nvfp4")
    kept = tuple(one for one in model.tensors if not one.name.endswith("weight_global_scale"))

    message = one(replace(model, tensors=kept)).message

    assert message.startswith("28 tensors are missing that packed weights need: model.layers.0.")
    assert message.count("weight_global_scale") == 5
    assert message.endswith(" and 23 more")


@cases("a_scale_of_another_shape_is_refused_by_name")
def test_a_scale_of_another_shape_is_refused_by_name(form: str, part: str) -> None:
    finding = one(changed(arriving(form), f"{Q_PROJ}.{part}", widened))

    assert finding.code == "quantization-shape"
    assert f"{Q_PROJ}.{part} has the shape" in finding.message


def test_scales_for_other_groups_than_declared_are_refused() -> None:
    assert one(arriving("awq", group_size=64)).code == "quantization-shape"


def test_experts_without_the_scales_of_their_blocks_are_refused() -> None:
    name = "model.layers.1.mlp.experts.down_proj_scales"

    assert name in one(without(gpt_oss(), name)).message


@cases("padded_rows")
def test_rows_that_do_not_fill_the_last_word_pass(
    bits: int, group: int, words: int, scales: int
) -> None:
    stated = compressed(
        "pack-quantized", quantized.arguments(bits, "int", "group", group_size=group)
    )
    matrix = "model.layers.0.mlp.up_proj"
    packed = {"weight_packed": ("I32", (256, words)), "weight_scale": ("BF16", (256, scales))}
    tensors = {f"{matrix}.{part}": found for part, found in packed.items()}

    assert codes(zoo.files(TINY | {"quantization_config": stated}, tensors)) == []


def test_groups_in_different_formats_are_each_held_against_their_own() -> None:
    int4 = {"targets": ["re:.*mlp.*"], "weights": quantized.INT_4, "format": "pack-quantized"}
    fp8 = {
        "targets": ["re:.*self_attn.*"],
        "weights": quantized.arguments(8, "float", "channel"),
        "input_activations": quantized.INPUTS_8,
        "format": "float-quantized",
    }
    stated = {
        "quant_method": "compressed-tensors",
        "format": "mixed-precision",
        "config_groups": {"group_0": int4, "group_1": fp8},
    }
    both = arriving("ct-w4a16")
    attention = arriving("ct-fp8-dynamic")
    tensors = (
        *(info for info in both.tensors if ".self_attn." not in info.name),
        *(info for info in attention.tensors if ".self_attn." in info.name),
    )
    model = replace(both, config=TINY | {"quantization_config": stated}, tensors=tensors)

    assert codes(model) == []
    assert one(without(model, f"{Q_PROJ}.weight_scale")).code == "quantization-scale-missing"


def test_groups_of_one_format_and_different_sizes_are_each_held_against_their_own() -> None:
    narrow = quantized.arguments(4, "int", "group", group_size=64)
    groups = {
        "group_0": {"targets": ["re:.*mlp.*"], "weights": narrow},
        "group_1": {"targets": ["re:.*self_attn.*"], "weights": quantized.INT_4},
    }
    model = arriving("ct-w4a16", config_groups=groups)
    tensors = tuple(
        tensor(info.name, info.dtype, (info.shape[0], 2 * info.shape[1]))
        if info.name.endswith("weight_scale") and ".mlp." in info.name
        else info
        for info in model.tensors
    )
    model = replace(model, tensors=tensors)

    assert codes(model) == []
    assert one(without(model, f"{Q_PROJ}.weight_scale")).code == "quantization-scale-missing"
    assert one(changed(model, f"{Q_PROJ}.weight_scale", widened)).code == "quantization-shape"


@cases("weights_that_are_declared_quantized_and_plain_are_refused")
def test_weights_that_are_declared_quantized_and_plain_are_refused(form: str) -> None:
    stated = quantized.BY_ID[form].stated

    finding = one(model_of(TINY | {"quantization_config": stated}))

    assert finding.code == "quantization-plain"
    assert "no tensor is packed so" in finding.message


@pytest.mark.parametrize("form", ["awq", "gptq", "ct-w4a16", "ct-fp8-dynamic", "ct-w8a8"])
def test_packed_weights_that_config_json_says_nothing_of_are_refused(form: str) -> None:
    finding = one(replace(arriving(form), config=TINY))

    assert finding.code == "quantization-undeclared"
    assert finding.message.startswith("28 tensors are packed and config.json has no ")


@cases("plain_or_packed", ignore=[], plain=[])
def test_a_weight_that_is_not_what_its_list_says_is_refused(
    form: str, ignore: list[str], plain: tuple[str, ...], code: str, said: str
) -> None:
    finding = one(arriving(form, plain=plain, **({"ignore": ignore} if ignore else {})))

    assert finding.code == code
    assert said in finding.message


@cases("plain_weights_on_the_list_of_ignored_ones_pass")
def test_plain_weights_on_the_list_of_ignored_ones_pass(ignore: list[str]) -> None:
    assert codes(arriving("ct-w4a16", plain=("o_proj",), ignore=["lm_head", *ignore])) == []


@cases("each_writers_own_list_of_ignored_modules_is_read")
def test_each_writers_own_list_of_ignored_modules_is_read(form: str, key: str, entry: str) -> None:
    assert codes(arriving(form, plain=("layers.2.self_attn.o_proj",))) == ["quantization-plain"]
    assert codes(arriving(form, plain=("layers.2.self_attn.o_proj",), **{key: [entry]})) == []


def test_plain_weights_that_no_target_names_pass() -> None:
    group = {"targets": ["re:.*layers\\.[013]\\..*"], "weights": quantized.INT_4}
    model = arriving(
        "ct-w4a16",
        plain=("layers.2.self_attn.q_proj", "2.self_attn.k_proj", "2.self_attn.v_proj"),
        config_groups={"group_0": group},
    )

    assert codes(model) == []


def test_inputs_of_experts_that_calibration_never_reached_are_warned_of() -> None:
    names = ("model.layers.0.mlp.experts.7.down_proj.input_scale",)
    weights = ("model.layers.0.mlp.experts.7.down_proj.weight_scale",)

    (finding,) = inspect_quantized(arriving("ct-fp8-static"), replace(VALUES, zero=names)).findings
    (error,) = inspect_quantized(arriving("ct-fp8-static"), replace(VALUES, zero=weights)).findings

    assert (finding.severity, finding.code) == ("warning", "quantization-scale-zero")
    assert (error.severity, error.code) == ("error", "quantization-scale-value")


def with_head(**more: Any) -> ModelFiles:
    """Make a quantized model with a plain MTP layer behind its last."""
    model = arriving("ct-fp8-dynamic", **more)
    head = tuple(
        tensor(f"model.layers.4.{part}.weight", "BF16", (256, 256))
        for part in ("self_attn.q_proj", "self_attn.o_proj", "eh_proj")
    )
    config = {**model.config, "num_nextn_predict_layers": 1, "model_type": "deepseek_v3"}
    return replace(model, config=config, tensors=(*model.tensors, *head))


def said_of_head(model: ModelFiles, *, drafts: bool = False) -> list[tuple[str, str]]:
    return [(found.severity, found.code) for found in check_head(model, drafts=drafts)]


def test_an_mtp_head_that_is_declared_and_not_there_is_warned_of_by_layer() -> None:
    model = model_of(TINY | {"num_nextn_predict_layers": 1, "model_type": "deepseek_v3"})

    (finding,) = check_head(model, drafts=False)

    assert (finding.severity, finding.code) == ("warning", "mtp-missing")
    assert "num_nextn_predict_layers" in finding.message
    assert "model.layers.4." in finding.message
    assert said_of_head(model, drafts=True) == []  # the draft says it, as an error


def test_a_plain_mtp_head_is_refused_where_the_engine_speculates_by_it() -> None:
    named = ["lm_head", "model.layers.4.self_attn.q_proj", "model.layers.4.self_attn.o_proj"]

    assert codes(with_head()) == []
    assert said_of_head(with_head()) == [("warning", "mtp-plain")]
    assert said_of_head(with_head(), drafts=True) == [("error", "mtp-plain")]
    assert said_of_head(with_head(ignore=named), drafts=True) == []
    assert said_of_head(model_of(TINY)) == []


def test_the_plan_warns_of_an_mtp_head_that_is_not_there() -> None:
    plan = plan_of(
        model_of(TINY | {"num_nextn_predict_layers": 1, "model_type": "deepseek_v3"}), "g5.xlarge"
    )

    assert "mtp-missing" in [finding.code for finding in plan.findings]


def test_a_pattern_that_takes_forever_is_not_tried() -> None:
    model = arriving("ct-w4a16", ignore=["re:(a+)+$", "re:(.*)*x", "re:" + ".*" * 40 + "x"])

    assert codes(model) == []


@cases("values_that_spoil_weights_are_said")
def test_values_that_spoil_weights_are_said(values: ScaleValues, severity: str, code: str) -> None:
    (finding,) = inspect_quantized(arriving("awq"), values).findings

    assert (finding.severity, finding.code) == (severity, code)
    assert "a.scales" in finding.message


def test_what_was_read_in_part_is_said_to_be() -> None:
    values = ScaleValues(read_bytes=10, total_bytes=1000, zero=("a.scales",))

    (finding,) = inspect_quantized(arriving("awq"), values).findings

    assert finding.message.endswith("read in part: 10 of 1000 bytes")


def test_scales_are_what_is_read_and_zero_points_are_not() -> None:
    names = {info.name.rpartition(".")[2] for info in quantized_scales(arriving("gptq"))}
    nvfp4 = {info.name.rpartition(".")[2] for info in quantized_scales(arriving("ct-nvfp4"))}

    assert names == {"scales"}
    assert nvfp4 == {"weight_scale", "weight_global_scale", "input_global_scale"}
    assert quantized_scales(model_of(TINY)) == ()


def test_nvfp4_weights_alone_are_planned_for_gpus_without_fp4_arithmetic() -> None:
    weights = quantized.arguments(4, "float", "tensor_group", group_size=16)
    plan = plan_of(arriving("ct-nvfp4", **compressed("nvfp4-pack-quantized", weights)), "g6.xlarge")

    assert plan.precision == "nvfp4a16"
    assert plan.quantization is not None
    assert (plan.quantization.scheme, plan.quantization.bits) == ("NVFP4A16", 4)
    with pytest.raises(PlanRejected, match="has no kernel for nvfp4_w4a4 weights"):
        plan_of(arriving("ct-nvfp4"), "g6.xlarge")


@cases("formats_are_told_by_their_weights_and_inputs")
def test_formats_are_told_by_weights_and_inputs(form: str, weight_format: str, bits: int) -> None:
    found, findings = read_quantization(arriving(form).config)

    assert (found.weight_format, found.bits, findings) == (weight_format, bits, [])


def test_int4_weights_in_bytes_need_no_int8_kernel() -> None:
    inputs = quantized.INPUTS_8 | {"type": "int"}
    stated = compressed("int-quantized", quantized.INT_4, inputs)

    assert read_quantization({"quantization_config": stated})[0].weight_format == ""


def test_a_draft_that_arrives_quantized_is_checked_too() -> None:
    broken = without(arriving("awq"), f"{Q_PROJ}.scales")
    model = model_of(TINY)
    profile, _ = make_profile(model)

    gpu = find_instance("ml.g5.xlarge")
    found = list(check_model(broken, model, profile, gpu, UNKNOWN_ENGINE))

    (finding,) = (one for one in found if one.code == "quantization-scale-missing")
    assert finding.message.startswith("draft: 1 tensor is missing")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=6,
)
KEYS = sorted(
    {key for form in FORMATS for key in form.stated}
    | {"weights", "input_activations", "targets", "exclude_modules", "quantization", "dynamic"}
    | {"sparsity_config", "extra_config", "lm_head", "kv_cache_scheme", "modules_to_not_convert"}
)


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(FORMATS), st.dictionaries(st.sampled_from(KEYS), JSON, max_size=4))
def test_nothing_in_quantization_config_raises(form: Arriving, odd: dict[str, Any]) -> None:
    model = arriving(form, SMALL, **odd)
    groups = dict(model.config["quantization_config"])
    groups["config_groups"] = {"g": {"targets": ["Linear"], "weights": odd, **odd}}
    nested = replace(model, config={**model.config, "quantization_config": groups})

    for one_model in (model, nested):
        inspected = inspect_quantized(one_model)
        assert all(finding.code in EXPLAINED for finding in inspected.findings)
        quantized_scales(one_model)

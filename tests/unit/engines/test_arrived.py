"""Checkpoints that arrive quantized, against what each engine's version loads."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from packager.catalog.containers import containers, find_container
from packager.core.facts import ContainerFacts
from packager.core.findings import Finding
from packager.core.model import ModelFiles
from packager.core.techniques import Quantization, Scheme
from packager.engines.prequantized import check_arrived
from packager.engines.schema import find_schema, shipped_versions
from packager.engines.tgi.family import TgiFamily
from packager.models.architectures.demands import read_arrived, written_demands
from packager.models.architectures.profile import make_profile
from tests.support.cases import cases
from tests.support.engine_plans import plan_for
from tests.support.headers import AWQ_G128, TINY, model_of, tensor
from tests.support.quantized import (
    AUTO_ROUND,
    BY_ID,
    GPTQ,
    INPUTS_8,
    INT_4,
    arguments,
    arriving,
    compressed,
    gpt_oss,
)


def findings(
    model: ModelFiles, container: ContainerFacts | str, **options: str
) -> tuple[Finding, ...]:
    """Check a model against a container, or against a version of vLLM."""
    if isinstance(container, str):
        container = replace(find_container("vllm", "nvidia"), engine_version=container)
    plan = replace(
        plan_for("vllm"),
        container=container,
        arrived=read_arrived(model.config, model.tensors),
        containers=containers(),
        engine_options=tuple(options.items()),
    )
    return tuple(check_arrived("vLLM", plan))


def codes(model: ModelFiles, container: ContainerFacts | str, **options: str) -> list[str]:
    return [finding.code for finding in findings(model, container, **options)]


def stating(stated: dict[str, Any]) -> ModelFiles:
    return model_of(TINY | {"quantization_config": stated})


LACKS = "engine-lacks-quantization"


@cases("methods")
def test_a_method_that_the_version_does_not_have_is_refused_naming_the_last_that_has(
    method: str, having: str, lacking: str, said: str
) -> None:
    model = stating({"quant_method": method})

    (finding,) = findings(model, lacking)

    assert (finding.severity, finding.code) == ("error", LACKS)
    assert finding.message == (
        f"vLLM {lacking} does not load checkpoints quantized with {method!r}; the {said}"
    )
    assert codes(model, having) == []


@pytest.mark.parametrize("method", ["exl2", "new"])
def test_a_method_that_no_known_version_has_is_refused_saying_so(method: str) -> None:
    (finding,) = findings(stating({"quant_method": method}), "0.27.1")

    assert finding.code == LACKS
    assert finding.message.endswith("; no version has it")


@pytest.mark.parametrize("version", ["0.10.2", "0.13.0", "0.16.0", "0.22.1", "0.27.1", "0.33.0"])
@cases("methods_that_every_version_has_pass_form")
def test_methods_that_every_version_has_pass(form: str, version: str) -> None:
    assert codes(arriving(form), version) == []


@pytest.mark.parametrize("version", ["0.13.0", "0.15.1", "0.27.1", "0.33.0"])
def test_auto_round_is_loaded_under_the_name_that_the_engine_gives_it(version: str) -> None:
    """vLLM dropped `auto-round` from its list in 0.15 and loads it as `inc`."""
    assert "auto-round" not in find_schema("vllm", "0.27.1").options["quantization"].choices
    assert codes(stating(AUTO_ROUND), version) == []


@pytest.mark.parametrize("version", ["0.10.2", "0.33.0"])
def test_gpt_oss_is_loaded_under_either_name_of_its_method(version: str) -> None:
    assert codes(gpt_oss(), version) == []


def test_methods_are_compared_as_the_engine_does_in_lower_case() -> None:
    assert codes(stating(AWQ_G128 | {"quant_method": "AWQ"}), "0.27.1") == []
    assert codes(stating({"quant_method": "compressed_tensors"}), "0.27.1") == []


def test_a_version_older_than_every_list_is_warned_of_only() -> None:
    lmi = find_container("lmi", "nvidia", "13")

    (finding,) = findings(stating({"quant_method": "exl2"}), lmi)

    assert (finding.severity, finding.code) == ("warning", LACKS)


def test_the_hint_names_containers_of_the_family_that_load_it() -> None:
    model = stating({"quant_method": "bitsandbytes"})
    upstream = find_container("vllm", "nvidia", "0.33.0")
    (vllm,) = findings(model, upstream)
    (lmi,) = findings(arriving("ct-mxfp8"), find_container("lmi", "nvidia", "22"))

    assert vllm.hint.startswith("use --container-version 0.27.1 or 0.26.0 or 0.25.1; or ")
    assert lmi.hint.startswith("use --container-version 28 or 27 or 26; or ")


@cases("deprecated")
def test_a_deprecated_method_needs_the_engines_switch(
    method: str, deprecated: str, not_yet: str
) -> None:
    model = stating({"quant_method": method})

    assert codes(model, deprecated) == ["quantization-deprecated"]
    assert codes(model, deprecated, **{"allow-deprecated-quantization": "true"}) == []
    assert codes(model, deprecated, **{"option.allow_deprecated_quantization": "true"}) == []
    assert codes(model, deprecated, **{"allow-deprecated-quantization": "false"}) != []
    assert codes(model, not_yet) == []


@cases("features", more={})
def test_a_format_is_refused_where_the_version_does_not_load_it(
    form: str, more: dict[str, Any], packed: dict[str, Any] | None, having: str, lacking: str
) -> None:
    if packed:
        inputs = INPUTS_8 | packed["inputs"] if packed["inputs"] else None
        more = compressed("pack-quantized", INT_4 | packed["weights"], inputs)
    model = arriving(form, **more)

    assert codes(model, having) == []
    (finding,) = findings(model, lacking)
    assert (finding.severity, finding.code) == ("error", LACKS)
    assert "version that" in finding.message


def test_groups_ordered_by_activation_with_one_group_for_all_pass() -> None:
    assert codes(stating(GPTQ | {"desc_act": True, "group_size": -1}), "0.33.0") == []


def test_a_format_that_no_version_loads_is_refused_saying_so() -> None:
    stated = compressed("mxfp6-pack-quantized", arguments(6, "float", "group", group_size=32))

    (finding,) = findings(stating(stated), "0.33.0")

    assert finding.message == ("vLLM 0.33.0 does not load MXFP6 weights; no version does")


def test_int4_with_fp8_inputs_is_loaded_packed_only() -> None:
    """llm-compressor saves W4AFP8 as `int-quantized`; vLLM's loader has a packed weight alone."""
    unpacked = stating(compressed("int-quantized", INT_4, INPUTS_8))
    packed = stating(compressed("pack-quantized", INT_4, INPUTS_8))

    assert codes(unpacked, "0.33.0") == [LACKS]
    assert codes(packed, "0.33.0") == []


def test_keys_that_the_containers_reader_forbids_are_refused() -> None:
    """compressed-tensors 0.12 forbids what it does not know, and 0.13 writes two keys more."""
    weights = INT_4 | {"scale_dtype": None, "zp_dtype": None}
    model = arriving("ct-w4a16", **compressed("pack-quantized", weights, version="0.19.0"))

    (finding,) = findings(model, "0.12.0")

    assert (finding.severity, finding.code) == ("error", "quantization-writer-newer")
    assert finding.message == (
        "vLLM 0.12.0 reads with compressed-tensors 0.12.2, which refuses 'scale_dtype', "
        "'zp_dtype' in quantization_config, written by compressed-tensors 0.19.0"
    )
    assert codes(model, "0.14.0") == []
    assert codes(model, find_container("lmi", "nvidia", "15")) == []  # its reader ignores them
    assert codes(arriving("ct-w4a16"), "0.12.0") == []


def with_head(form: str, suffix: str, dtype: str, **more: Any) -> ModelFiles:
    model = arriving(form, **more)
    kept = tuple(info for info in model.tensors if info.name != "lm_head.weight")
    return replace(model, tensors=(*kept, tensor(f"lm_head.{suffix}", dtype, (2048, 128))))


@cases("heads")
def test_a_quantized_head_is_refused_where_the_version_loads_a_plain_one(
    form: str, suffix: str, dtype: str, having: str, lacking: str
) -> None:
    model = with_head(form, suffix, dtype)

    assert codes(model, having) == []
    (finding,) = findings(model, lacking)
    assert (finding.severity, finding.code) == ("error", "quantized-head")
    assert f"'lm_head.{suffix}'" in finding.message


@pytest.mark.parametrize("version", ["0.10.2", "0.33.0"])
def test_a_head_in_fp8_of_deepseeks_kind_is_loaded_by_no_version(version: str) -> None:
    assert codes(with_head("deepseek-fp8", "weight", "F8_E4M3"), version) == ["quantized-head"]


def test_a_quantized_head_that_config_json_does_not_declare_is_refused() -> None:
    assert codes(with_head("gptq", "qweight", "I32"), "0.27.1") == ["quantized-head"]
    assert codes(with_head("gptq", "qweight", "I32", lm_head=True), "0.27.1") == []


def test_a_plain_head_with_a_bias_is_no_quantized_one() -> None:
    model = arriving("deepseek-fp8")
    bias = tensor("lm_head.bias", "BF16", (2048,))

    assert codes(replace(model, tensors=(*model.tensors, bias)), "0.33.0") == []


@cases("sglang")
def test_sglang_is_asked_by_its_own_list(version: str, method: str, expected: list[str]) -> None:
    container = find_container("sglang", "nvidia", version)

    assert codes(stating({"quant_method": method}), container) == expected


@cases("tgi")
def test_tgi_is_asked_for_formats_inside_compressed_tensors(form: str, expected: list[str]) -> None:
    model = arriving(form)
    profile, _ = make_profile(model)
    plan = replace(
        plan_for("tgi", profile=profile, quantization=None),
        arrived=read_arrived(model.config, model.tensors),
    )

    assert [one.code for one in TgiFamily().check(plan) if "quantization" in one.code] == expected


def test_every_version_of_the_lists_answers_for_every_writer() -> None:
    """No row of a table names what cannot be compared, and no version raises."""
    for version in shipped_versions("vllm"):
        for form in BY_ID:
            assert set(codes(arriving(form), version)) <= {LACKS, "quantization-deprecated"}


WRITTEN = Quantization(
    method="gptq", scheme="W4A16", bits=4, checkpoint_format="compressed-tensors"
)


@cases("written")
def test_what_would_be_written_is_held_against_the_container_too(
    scheme: str, release: str, expected: list[str]
) -> None:
    plan = replace(
        plan_for("vllm"),
        container=find_container("lmi", "nvidia", release),
        arrived=written_demands(replace(WRITTEN, scheme=scheme)),
    )

    assert [finding.code for finding in check_arrived("vLLM", plan)] == expected


@cases("zero_points", zero_bits=4, experts=True, left_out=False)
def test_zero_points_of_experts_are_asked_of_the_engine(
    family: str, release: str, zero_bits: int, experts: bool, left_out: bool, expected: list[str]
) -> None:
    layout = Scheme(name="W4A16", needs="", word="", bits=4, group_size=128, zero_bits=zero_bits)
    wanted = replace(WRITTEN, method="awq", layout=layout, experts_left_out=left_out)
    plan = replace(
        plan_for(family),
        container=find_container(family, "nvidia", release or None),
        quantization=wanted,
        arrived=written_demands(wanted, experts=experts),
    )

    found = list(check_arrived("Engine", plan))

    assert [finding.code for finding in found] == expected
    assert all("zero points of experts" in one.message for one in found)


@cases("targets", architecture="SmolLM3ForCausalLM", targets=("Linear",), written=False)
def test_schemes_for_kinds_of_modules_are_asked_of_the_class_that_has_the_model(
    family: str, version: str, architecture: str, targets: list[str], written: bool, expected: bool
) -> None:
    """As the loaders of these versions say: 'Unable to find matching target for model.layers…'."""
    plan = plan_for(family)
    group = {"targets": [*targets], "weights": INT_4}
    model = stating(compressed("pack-quantized", INT_4, config_groups={"group_0": group}))
    plan = replace(
        plan,
        profile=replace(plan.profile, architecture=architecture),
        container=replace(find_container(family, "nvidia"), engine_version=version),
        arrived=written_demands(WRITTEN) if written else read_arrived(model.config, model.tensors),
    )

    assert [one.code for one in check_arrived("Engine", plan)] == [LACKS] * expected


@cases("ours", architecture="Mistral3ForConditionalGeneration", experts=0, ours=True)
def test_what_a_class_does_not_load_as_we_write_it_is_refused(
    family: str, architecture: str, experts: int, ours: bool, expected: bool
) -> None:
    plan = plan_for(family)
    plan = replace(
        plan,
        profile=replace(plan.profile, architecture=architecture, experts=experts),
        arrived=written_demands(WRITTEN),
        quantization=replace(WRITTEN, existing=not ours),
    )

    found = [one for one in check_arrived("Engine", plan) if "packager quantizes" in one.message]

    assert [one.code for one in found] == [LACKS] * expected


def test_zero_points_of_experts_that_arrive_are_seen_in_the_headers() -> None:
    stated = {"quant_method": "compressed-tensors", "config_groups": {}}
    names = ("experts.0.up_proj.weight_zero_point", "q_proj.weight_zero_point")

    found = [
        read_arrived({"quantization_config": stated}, (tensor(f"layers.0.{name}", "I32", (2, 2)),))
        for name in names
    ]

    assert [one.features for one in found if one] == [("expert-zero-points",), ()]


def test_an_existing_checkpoint_and_loading_time_demand_nothing_written() -> None:
    assert written_demands(replace(WRITTEN, existing=True)) is None
    assert written_demands(replace(WRITTEN, checkpoint_format="")) is None
    assert written_demands(None) is None

"""Engine options in a plan's figures: every one is classed, and the counted are counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import pytest

from packager.catalog.containers import containers, find_container
from packager.core.errors import PlanRejected
from packager.core.instance import DeviceKind
from packager.core.plan import MemoryBudget
from packager.engines.effects import (
    ADDITIONAL,
    OVERRIDES,
    _table,
    check_effects,
    count_options,
    effect_of,
    engine_named,
)
from packager.engines.lmi.options import lmi_options
from packager.engines.neuron.check import lmi_schema
from packager.engines.schema import find_schema, shipped_versions
from packager.engines.trtllm import options as trtllm_options
from packager.estimate.sizing.kv_cache import with_state_types
from packager.models.architectures.profile import make_profile
from tests.support.cases import cases
from tests.support.headers import LLAMA_3_8B, model_of, plan_of
from tests.support.shapes import plain

Image = tuple[str, DeviceKind, str]  # family, kind of device, version
ROOMY: dict[str, Any] = {"family": "vllm", "container_version": "0.27.1", "max_batch": 8}


def options_of(engine: str) -> set[str]:
    versions = shipped_versions(engine)
    return {name for version in versions for name in find_schema(engine, version).options}


def lmi_keys() -> set[str]:
    """Return what LMI's releases read that is no option of the vLLM inside."""
    images = [one for one in containers() if (one.family, one.engine) == ("lmi", "vllm")]
    keys: set[str] = set()
    for image in images:
        read = lmi_options(find_schema("vllm", image.engine_version), int(image.release)).types
        keys |= engine_named(image, dict.fromkeys(read, "")).keys()
    return keys - options_of("vllm")


def bare(keys: Iterable[str]) -> set[str]:
    return {key.removeprefix("option.").lower().replace("_", "-") for key in keys}


def nxdi_fields() -> set[str]:
    fields: set[str] = set()
    for version in shipped_versions("nxdi"):
        outer = find_schema("nxdi", version).options[ADDITIONAL].config
        inner = outer.fields[OVERRIDES].config if outer is not None else None
        fields |= inner.fields.keys() if inner is not None else set()
    return fields


TABLES: dict[str, Callable[[], set[str]]] = {
    **{engine: partial(options_of, engine) for engine in ("vllm", "sglang", "tgi")},
    "lmi": lmi_keys,
    "tensorrt-llm": lambda: bare(key for of in TRTLLM for key in trtllm_options()[of]),
    "nxdi": nxdi_fields,
    "transformers-neuronx": lambda: bare(lmi_schema("0.30.0").options),
    "tgi-neuronx": lambda: options_of("neuronx-tgi") - options_of("tgi"),
    "hf-vllm-neuronx": lambda: options_of("optimum-neuron") - options_of("vllm"),
}
TRTLLM = ("build", "serving", "pytorch")
VALUES = ("cache", "type_bytes")  # tables of values, not of options


@pytest.mark.parametrize("table", TABLES)
def test_every_option_of_every_version_has_one_class(table: str) -> None:
    lists = {key: rows for key, rows in _table()[table].items() if key not in VALUES}
    classed = Counter(name for names in lists.values() for name in names)
    known = TABLES[table]()

    assert known - classed.keys() == set()
    assert [name for name, times in classed.items() if times > 1] == []
    assert classed.keys() - known == set()


def test_an_option_that_nobody_classed_has_no_effect_that_is_known() -> None:
    assert effect_of(find_container("vllm", "nvidia"), "an-option-of-tomorrow") is None
    assert count_options("vllm", {"cpu-offload-gb": "inf", "block-size": "x"}).offloaded_bytes == 0


def budget_of(**asked: Any) -> MemoryBudget:
    return plan_of(model_of(LLAMA_3_8B), "g6e.xlarge", **ROOMY, **asked).budget


@cases("an_option_plans_as_the_request_of_the_same_meaning")
def test_an_option_plans_as_the_request_of_the_same_meaning(
    options: dict[str, str], asked: dict[str, Any]
) -> None:
    assert budget_of(engine_options=options) == budget_of(**asked)


@cases("an_option_that_changes_memory_is_counted")
def test_an_option_that_changes_memory_is_counted(
    options: dict[str, str], part: str, change: int
) -> None:
    changed, plain = budget_of(engine_options=options), budget_of()
    assert getattr(changed, part) - getattr(plain, part) == change


@cases("types_of_states_are_counted")
def test_types_of_states_are_counted(
    family: str, version: str | None, options: dict[str, str], state_bytes: int
) -> None:
    """23 Mamba-2 layers of Nemotron-3-Nano: 18,432 elements of convolution, 524,288 others."""
    profile, _ = make_profile(plain("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16"))
    counted = count_options(family, options)
    widths = counted.mixed_element_bytes, counted.recurrent_element_bytes

    assert with_state_types(profile, *widths).state_bytes == state_bytes
    said = check_effects("it", find_container(family, "nvidia", version), options, profile)
    assert list(said) == []


def test_sglang_keeps_states_in_32_bits_where_the_model_says_nothing() -> None:
    profile, _ = make_profile(plain("Qwen/Qwen3-Next-80B-A3B-Instruct"))
    counted = count_options("sglang", {})

    found = with_state_types(profile, counted.mixed_element_bytes, counted.recurrent_element_bytes)

    assert (profile.state_bytes, found.state_bytes) == (39_518_208, 77_266_944)


def test_a_plan_reserves_less_for_states_of_16_bits() -> None:
    model = plain("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16")
    wide, narrow = (
        plan_of(model, "ml.p5.48xlarge", **ROOMY, tp_degree=2, engine_options=options).budget
        for options in ({}, {"mamba-ssm-cache-dtype": "float16"})
    )
    assert narrow.request_bytes(1000) < 0.7 * wide.request_bytes(1000)


def test_graphs_take_nothing_where_they_are_off() -> None:
    eager = budget_of(engine_options={"enforce-eager": "true"})
    assert eager.overhead_bytes < budget_of().overhead_bytes


@cases("what_is_not_counted_is_said")
def test_what_is_not_counted_is_said(options: dict[str, str], said: list[str]) -> None:
    plan = plan_of(model_of(LLAMA_3_8B), "g6e.xlarge", **ROOMY, engine_options=options)
    assert [one.severity for one in plan.findings if one.code == "option-not-counted"] == said


LMI: Image = ("lmi", "nvidia", "27")


@cases("options_of_an_image_s_own_are_classed")
def test_options_of_an_image_s_own_are_classed(
    image: Image, name: str, value: str, said: list[str]
) -> None:
    container = find_container(*image)
    named = engine_named(container, {name: value})
    found = check_effects("it", container, named, make_profile(model_of(LLAMA_3_8B))[0])
    assert [one.severity for one in found] == said


@cases("what_the_plan_decides_is_refused_with_its_own_option")
def test_what_the_plan_decides_is_refused_with_its_own_option(
    name: str, value: str, owner: str
) -> None:
    with pytest.raises(PlanRejected) as refused:
        budget_of(engine_options={name: value})
    assert [(one.code, one.hint) for one in refused.value.findings if one.severity == "error"] == [
        ("options-conflict", f"use {owner}")
    ]

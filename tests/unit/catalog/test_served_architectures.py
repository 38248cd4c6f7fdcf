"""Which architectures the engines have, and what each of them does."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from packager.catalog.model_types import find_type
from packager.catalog.served_architectures import (
    Listing,
    find_listing,
    is_listed,
    kind_of,
    last_version,
    reads_type,
    reads_type_in,
)
from packager.core.image import Inline
from packager.core.model import ModelFile
from packager.models.architectures.profile import make_profile
from tests.support import zoo
from tests.support.cases import cases
from tests.support.headers import LLAMA_3_8B
from tests.support.known import known


@cases("the_engine_has_what_its_own_registry_lists")
def test_the_engine_has_what_its_own_registry_lists(
    architecture: str, version: str, has: bool, comes: str
) -> None:
    listing = known(find_listing("vllm", architecture))

    assert (listing.has(version), listing.comes_with(version)) == (has, comes)


def test_an_architecture_that_was_taken_out_names_its_last_version() -> None:
    listing = known(find_listing("vllm", "BambaForCausalLM"))

    assert last_version("vllm", before=listing.went_with("0.27.1")) == "0.23.0"


def test_a_class_that_came_back_is_missing_only_in_between() -> None:
    listing = Listing("text", (("0.2", "0.4"), ("0.6", "")))

    had = [
        version for version in ("0.1", "0.2", "0.3", "0.4", "0.5", "0.6") if listing.has(version)
    ]
    assert had == ["0.2", "0.3", "0.6"]
    assert listing.comes_with("0.5") == "0.6"


@cases("what_a_class_does_is_known")
def test_what_a_class_does_is_known(architecture: str, kind: str) -> None:
    assert kind_of(architecture) == kind


@cases(
    "what_writes_no_text_is_refused_as_what_it_is_and_not_for_its_config",
    code="model-not-generative",
)
def test_what_writes_no_text_is_refused_as_what_it_is_and_not_for_its_config(
    config: dict[str, Any], what: str, way: str, code: str
) -> None:
    _, findings = make_profile(zoo.config_only(config))

    assert [finding.code for finding in findings] == [code]
    assert what in findings[0].message
    assert way in findings[0].hint


@cases("an_embedding_model_with_a_decoders_class_is_not_planned_as_a_generator")
def test_an_embedding_model_with_a_decoders_class_is_not_planned_as_a_generator(path: str) -> None:
    """Qwen3-Embedding names Qwen3ForCausalLM as its architecture."""
    config = LLAMA_3_8B | {"architectures": ["Qwen3ForCausalLM"]}
    plain = zoo.config_only(config)
    beside = ModelFile(path=path, role="other", content=Inline(b"[]"))

    _, findings = make_profile(replace(plain, files=(beside,)))

    assert [finding.code for finding in findings] == ["pooling-incomplete"]
    assert path in findings[0].message
    assert make_profile(plain)[1] == ()


@cases("types_of_configuration_that_some_engine_reads_without_the_models_code")
def test_types_of_configuration_that_some_engine_reads_without_the_models_code(
    model_type: str, is_read: bool
) -> None:
    assert reads_type(model_type) is is_read


def test_a_type_that_an_engine_brings_itself_counts_from_its_version_on() -> None:
    assert not reads_type_in("kimi_k2", "vllm", "0.17.1")
    assert reads_type_in("kimi_k2", "vllm", "0.18.0")
    assert reads_type_in("llama", "vllm", "0.6.0")


def test_every_class_of_the_lists_is_listed_for_some_engine() -> None:
    assert all(
        is_listed(name) for name in ("MiniMaxM2ForCausalLM", "DotsVLMForCausalLM", "MptForCausalLM")
    )
    assert not is_listed("NeverHeardOfForCausalLM")


def test_nested_parts_know_their_own_type() -> None:
    thinker = known(find_type("qwen3_omni_moe"))

    assert thinker.parts == {"thinker_config": "qwen3_omni_moe_thinker"}
    assert find_type("never_heard_of") is None
    assert find_type(7) is None

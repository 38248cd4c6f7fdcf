"""Draft files as engines read them: described from headers, byte for byte the same tensors."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from packager.catalog.containers import find_container
from packager.core.image import Blob, FileRange, Inline
from packager.core.model import ModelFile, ModelFiles, TensorInfo, WeightsHeader
from packager.core.plan import Plan
from packager.core.techniques import Draft
from packager.optimize.drafts.eagle import eagle_draft, read_eagle
from packager.optimize.drafts.medusa import medusa_draft, read_medusa
from packager.optimize.drafts.relayout import convert_draft_layout, eagle_names
from tests.support import heads, zoo
from tests.support.doubles.containers import with_traits
from tests.support.headers import LLAMA_3_8B, model_of, plan_of

ROPELESS = heads.eagle3_of_speculators(LLAMA_3_8B).config["transformer_layer_config"]
LAYERS: dict[str, Any] = {"eagle_aux_hidden_state_layer_ids": [2, 16, 29]}


def planned(draft: Draft, family: str, engine_version: str = "") -> Plan:
    plan = plan_of(model_of(LLAMA_3_8B), "g5.12xlarge", family="vllm")
    container = find_container(family, "nvidia")
    if engine_version:
        container = replace(container, engine_version=engine_version)
    return replace(plan, container=with_traits(container), draft=draft)


def on_disk(head: ModelFiles, *shards: str) -> tuple[ModelFile, ...]:
    """The head's files, its tensors dealt out to shards."""
    sizes = {name: sum(one.size for one in dealt(head, shards, name)) for name in shards}
    weights = [
        ModelFile(
            path=name,
            role="weights",
            content=FileRange(path=f"/head/{name}", offset=0, length=512 + size),
            sha256="a" * 64,
        )
        for name, size in sizes.items()
    ]
    config = ModelFile(path="config.json", role="config", content=Inline(b"{}"))
    index = ModelFile(path="model.safetensors.index.json", role="config", content=Inline(b"{}"))
    return (config, *([index] if len(shards) > 1 else []), *weights)


def dealt(head: ModelFiles, shards: tuple[str, ...], name: str) -> tuple[TensorInfo, ...]:
    return head.tensors[shards.index(name) :: len(shards)]


def laid_out(
    head: ModelFiles, draft: Draft, family: str, *shards: str, engine_version: str = ""
) -> dict[str, ModelFile]:
    def read_header(file: ModelFile) -> WeightsHeader:
        tensors = dealt(head, shards, file.path)
        return WeightsHeader(tensors=tensors, metadata={"format": "pt"}, data_offset=512)

    plan = planned(draft, family, engine_version)
    files = convert_draft_layout(on_disk(head, *shards), head.config, plan, read_header)
    assert [file.path for file in files] == sorted(file.path for file in files)
    return {file.path: file for file in files}


def names_of(file: ModelFile) -> list[str]:
    """Names in a header of ours, which stands before one range of the original's bytes."""
    assert isinstance(file.content, Blob)
    header, data = file.content.segments
    assert isinstance(header, Inline)
    assert isinstance(data, FileRange)
    assert data.offset == 512
    assert (file.sha256, file.part_of) == ("", "a" * 64)
    length = int.from_bytes(header.data[:8], "little")
    return [name for name in json.loads(header.data[8 : 8 + length]) if name != "__metadata__"]


def config_of(file: ModelFile) -> dict[str, Any]:
    assert isinstance(file.content, Inline)
    config: dict[str, Any] = json.loads(file.content.data)
    return config


def eagle3(head: ModelFiles) -> Draft:
    return eagle_draft(Draft(kind="eagle3", speculative_tokens=3), read_eagle(head))


def medusa(head: ModelFiles) -> Draft:
    return medusa_draft(Draft(kind="medusa", speculative_tokens=0), read_medusa(head))


def test_a_head_in_its_authors_format_is_served_as_it_is() -> None:
    head = heads.eagle3(LLAMA_3_8B)

    for family in ("vllm", "lmi", "sglang"):
        files = laid_out(head, eagle3(head), family, "model.safetensors")
        assert tuple(files.values()) == on_disk(head, "model.safetensors")


def test_layers_that_sglang_counts_otherwise_are_stated_for_both_engines() -> None:
    for changed in ({"eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 15, 28]}}, LAYERS):
        head = heads.eagle3(LLAMA_3_8B, **changed)
        config = config_of(laid_out(head, eagle3(head), "vllm", "model.safetensors")["config.json"])
        assert config["eagle_aux_hidden_state_layer_ids"] == [2, 16, 29]
        assert config["eagle_config"]["eagle_aux_hidden_state_layer_ids"] == [1, 15, 28]


def test_a_head_of_speculators_keeps_its_tensors_in_vllm_and_names_the_model_in_the_image() -> None:
    head = heads.eagle3_of_speculators(LLAMA_3_8B, **LAYERS)

    files = laid_out(head, eagle3(head), "vllm", "model.safetensors")

    verifier = config_of(files["config.json"])["speculators_config"]["verifier"]
    assert verifier["name_or_path"] == "/opt/packager/model"
    assert verifier["architectures"] == ["LlamaForCausalLM"]
    assert files["model.safetensors"] == on_disk(head, "model.safetensors")[1]


def test_norms_of_eagle_3_1_are_stated_where_sglang_reads_them() -> None:
    said = {"fc_norm": True, "norm_output": True, "norm_before_fc": False}
    head = heads.eagle3_of_speculators(LLAMA_3_8B, **said)

    files = laid_out(head, eagle3(head), "sglang", "model.safetensors")

    assert config_of(files["config.json"]).items() >= said.items()
    assert eagle_names(eagle3(head))("fc_norm.0.weight") == "fc_norm.0.weight"


def test_an_old_vllm_and_sglang_get_the_authors_format() -> None:
    head, published = heads.eagle3_of_speculators(LLAMA_3_8B), heads.eagle3(LLAMA_3_8B)

    for family, version in (("sglang", ""), ("lmi", "0.8.4")):
        files = laid_out(head, eagle3(head), family, "model.safetensors", engine_version=version)
        assert sorted(names_of(files["model.safetensors"])) == sorted(
            one.name for one in published.tensors
        )
        config = config_of(files["config.json"])
        assert config.items() >= published.config.items()
        assert "speculators_config" not in config


def test_positions_turn_as_they_did_in_training_with_every_transformers() -> None:
    """transformers 4 knows no `rope_parameters`, and would take 10000 without a word."""
    llama_3 = {"rope_type": "llama3", "factor": 8.0}
    of_five: dict[str, Any] = {"rope_parameters": {"rope_theta": 500000.0, **llama_3}}
    head = heads.eagle3_of_speculators(LLAMA_3_8B, transformer_layer_config={**ROPELESS, **of_five})
    authors = heads.eagle3(LLAMA_3_8B, **of_five)
    plain = heads.eagle3(LLAMA_3_8B, rope_parameters={"rope_theta": 1e6, "rope_type": "default"})

    def written(made: ModelFiles, family: str) -> dict[str, Any]:
        return config_of(laid_out(made, eagle3(made), family, "model.safetensors")["config.json"])

    for config in (
        written(head, "vllm")["transformer_layer_config"],
        written(head, "sglang"),
        written(authors, "vllm"),
    ):
        assert config["rope_theta"] == 500000.0
        assert config["rope_scaling"] == llama_3
        assert config["rope_parameters"] == of_five["rope_parameters"]
    assert written(plain, "sglang")["rope_theta"] == 1e6
    assert "rope_scaling" not in written(plain, "sglang")


def test_an_index_names_the_tensors_as_the_shards_do() -> None:
    head = heads.eagle3_of_speculators(LLAMA_3_8B)
    shards = ("model-1.safetensors", "model-2.safetensors")

    files = laid_out(head, eagle3(head), "sglang", *shards)

    weight_map = config_of(files["model.safetensors.index.json"])["weight_map"]
    for shard in shards:
        assert sorted(names_of(files[shard])) == sorted(
            name for name, file in weight_map.items() if file == shard
        )


def test_medusa_heads_go_both_ways_and_back_by_name() -> None:
    authors, vllm = zoo.medusa(2, 4096, 128256), heads.medusa_of_vllm(4096, 128256, heads=2)

    to_vllm = laid_out(authors, medusa(authors), "vllm", "medusa_lm_head.safetensors")
    to_tgi = laid_out(vllm, medusa(vllm), "tgi", "model.safetensors")

    assert names_of(to_vllm["medusa_lm_head.safetensors"]) == [
        name
        for head in range(2)
        for name in (
            f"blocks.{head}.layers.0.weight",
            f"blocks.{head}.layers.0.bias",
            f"lm_heads.{head}.weight",
        )
    ]
    assert names_of(to_tgi["medusa_lm_head.safetensors"]) == [
        name for head in range(2) for name in (f"{head}.0.linear.weight", f"{head}.1.weight")
    ]


def test_heads_that_have_the_engines_names_keep_their_bytes_and_their_digest() -> None:
    head = zoo.medusa(2, 4096, 128256)

    file = laid_out(head, medusa(head), "tgi", "heads.safetensors")["medusa_lm_head.safetensors"]

    assert file.sha256 == "a" * 64
    assert isinstance(file.content, FileRange)


def test_a_draft_model_is_left_alone() -> None:
    head = heads.eagle(LLAMA_3_8B)
    draft = Draft(kind="draft_model", reference="org/small", speculative_tokens=5)

    files = laid_out(head, draft, "vllm", "model.safetensors")
    assert tuple(files.values()) == on_disk(head, "model.safetensors")

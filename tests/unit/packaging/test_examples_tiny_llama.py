"""Promises of the two committed example models, checked without any ML framework.

Other tests quantize, package and serve these files; what they rely on is stated here, so that a
retrained model that breaks it fails in one obvious place.
"""

from __future__ import annotations

import json
import re
import struct
from pathlib import Path, PurePosixPath
from typing import Any

import jinja2
import pytest

from packager.models.local import LocalSource
from packager.models.reference import parse_model_reference
from tests.support.cases import cases_of
from tests.support.places import ROOT
from tests.support.workers import load

cases = cases_of(__file__)

EXAMPLES = ROOT / "examples"
MODEL = EXAMPLES / "tiny-llama"
DRAFT = EXAMPLES / "tiny-llama-draft"
UNIFORM_PERPLEXITY = 2048  # the vocabulary: what guessing would score

corpus = load(MODEL / "corpus.py")
both_models = pytest.mark.parametrize("folder", [MODEL, DRAFT], ids=lambda folder: folder.name)


def test_model_fits_in_the_repository() -> None:
    assert sum(file.stat().st_size for file in MODEL.rglob("*") if file.is_file()) <= 10_000_000


def test_model_has_several_shards_as_large_models_do() -> None:
    assert len(list(MODEL.glob("model-*-of-*.safetensors"))) >= 3


def test_index_counts_the_bytes_that_the_shards_hold() -> None:
    index = read_json(MODEL / "model.safetensors.index.json")

    assert index["metadata"]["total_size"] == sum(
        tensor["data_offsets"][1] - tensor["data_offsets"][0]
        for tensor in read_tensors(MODEL).values()
    )


@both_models
def test_every_file_is_sound(folder: Path) -> None:
    found = LocalSource().facts(parse_model_reference(str(folder)))

    assert {tensor.name for tensor in found.tensors} == set(read_tensors(folder))


@both_models
def test_every_tensor_is_bf16(folder: Path) -> None:
    assert {tensor["dtype"] for tensor in read_tensors(folder).values()} == {"BF16"}


@both_models
def test_every_matrix_can_be_quantized_in_groups_of_128(folder: Path) -> None:
    odd = {
        name: tensor["shape"]
        for name, tensor in read_tensors(folder).items()
        if len(tensor["shape"]) == 2 and any(side % 128 for side in tensor["shape"])
    }

    assert odd == {}


def test_model_groups_its_queries() -> None:
    config = read_json(MODEL / "config.json")

    assert config["num_attention_heads"] == 4
    assert config["num_key_value_heads"] == 2
    assert config["head_dim"] == 64


@both_models
def test_config_is_spelled_for_transformers_4_and_5(folder: Path) -> None:
    config = read_json(folder / "config.json")

    assert config["architectures"] == ["LlamaForCausalLM"]
    assert config["dtype"] == config["torch_dtype"] == "bfloat16"
    assert config["rope_parameters"]["rope_theta"] == config["rope_theta"] == 10000.0
    assert config["max_position_embeddings"] == 1024
    assert config["tie_word_embeddings"] is False


@both_models
def test_tokenizer_class_is_one_that_transformers_4_knows(folder: Path) -> None:
    config = read_json(folder / "tokenizer_config.json")

    assert config["tokenizer_class"] == "PreTrainedTokenizerFast"
    assert config["additional_special_tokens"] == ["<|system|>", "<|user|>", "<|assistant|>"]


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json"])
def test_model_and_draft_share_their_tokenizer_to_the_byte(name: str) -> None:
    assert (MODEL / name).read_bytes() == (DRAFT / name).read_bytes()


@both_models
def test_generation_stops_at_the_token_that_ends_an_answer(folder: Path) -> None:
    generation = read_json(folder / "generation_config.json")
    added = read_json(folder / "tokenizer.json")["added_tokens"]
    ids = {token["content"]: token["id"] for token in added}

    assert generation["eos_token_id"] == ids["</s>"]
    assert generation["pad_token_id"] == ids["<pad>"]


def test_chat_template_opens_the_answer() -> None:
    config = read_json(MODEL / "tokenizer_config.json")

    chat = jinja2.Template(config["chat_template"]).render(
        messages=[{"role": "user", "content": "What is the json module for?"}],
        bos_token=config["bos_token"],
        eos_token=config["eos_token"],
        add_generation_prompt=True,
    )

    assert chat == "<s><|user|>\nWhat is the json module for?\n<|assistant|>\n"


@both_models
def test_card_shows_a_model_that_has_learned(folder: Path) -> None:
    card = (folder / "README.md").read_text()

    published = re.search(r"held-out perplexity per token \| ([\d.]+) \|", card)

    assert published is not None
    assert 1 < float(published[1]) < UNIFORM_PERPLEXITY / 40


@both_models
def test_card_states_the_licence(folder: Path) -> None:
    assert (folder / "README.md").read_text().startswith("---\nlicense: apache-2.0\n")


@cases("split_depends_on_the_file_name_alone")
def test_split_depends_on_the_file_name_alone(path: str, held_out: bool) -> None:
    assert corpus.is_held_out(PurePosixPath(path)) is held_out


def test_chats_are_held_out_with_the_module_they_are_about(tmp_path: Path) -> None:
    for name in ("statistics", "shutil"):
        source = f'"""Everything about {name}, explained."""\n' + "# padding\n" * 50
        (tmp_path / f"{name}.py").write_text(source)

    train, held_out = corpus.read_corpora(tmp_path)

    assert [chat[0]["content"] for chat in train.chats] == ["What is the shutil module for?"]
    assert [chat[1]["content"] for chat in held_out.chats] == [
        "Everything about statistics, explained."
    ]


def test_corpus_leaves_out_files_that_hold_the_build_machines_paths(tmp_path: Path) -> None:
    (tmp_path / "_sysconfigdata__linux_x86_64-linux-gnu.py").write_text("# padding\n" * 100)

    assert corpus.read_sources(tmp_path) == ()


def read_tensors(folder: Path) -> dict[str, Any]:
    """Read the headers of all shards, which tell each tensor's dtype, shape and place."""
    return {
        name: tensor
        for shard in folder.glob("*.safetensors")
        for name, tensor in read_header(shard).items()
    }


def read_header(shard: Path) -> dict[str, Any]:
    with shard.open("rb") as file:
        (header_bytes,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(header_bytes))
    header.pop("__metadata__", None)
    return header


def read_json(file: Path) -> dict[str, Any]:
    return json.loads(file.read_text())

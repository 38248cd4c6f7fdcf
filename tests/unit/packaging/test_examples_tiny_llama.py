"""Promises of the two committed example models, checked without any ML framework.

Other tests quantize, package and serve these files; what they rely on is stated here, so that a
retrained model that breaks it fails in one obvious place.
"""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import jinja2
import pytest

from packager.models.local import LocalSource
from packager.models.reference import parse_model_reference
from tests.support.places import ROOT
from tests.support.workers import load

EXAMPLES = ROOT / "examples"
MODEL = EXAMPLES / "tiny-llama"
DRAFT = EXAMPLES / "tiny-llama-draft"

corpus = load(MODEL / "corpus.py")
both_models = pytest.mark.parametrize("folder", [MODEL, DRAFT], ids=lambda folder: folder.name)


@both_models
def test_every_file_is_sound(folder: Path) -> None:
    found = LocalSource().facts(parse_model_reference(str(folder)))

    assert {tensor.name for tensor in found.tensors} == set(read_tensors(folder))


@both_models
def test_every_matrix_can_be_quantized_in_groups_of_128(folder: Path) -> None:
    odd = {
        name: tensor["shape"]
        for name, tensor in read_tensors(folder).items()
        if len(tensor["shape"]) == 2 and any(side % 128 for side in tensor["shape"])
    }

    assert odd == {}


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


def test_chats_are_held_out_with_the_module_they_are_about(tmp_path: Path) -> None:
    for name in ("statistics", "shutil"):
        source = f'"""Everything about {name}, explained."""\n' + "# padding\n" * 50
        (tmp_path / f"{name}.py").write_text(source)

    train, held_out = corpus.read_corpora(tmp_path)

    assert [chat[0]["content"] for chat in train.chats] == ["What is the shutil module for?"]
    assert [chat[1]["content"] for chat in held_out.chats] == [
        "Everything about statistics, explained."
    ]


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

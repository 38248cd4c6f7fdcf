"""Models in Mistral's own format: served whole, and planned by what engines make of their keys."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from packager.core.findings import errors_in
from packager.core.image import Blob, Inline
from packager.core.model import ModelFiles
from packager.images.blobs import BlobReader
from packager.images.reshard import split_large
from packager.models.architectures.profile import make_profile
from packager.models.local import LocalSource
from packager.models.mistral_format import INDEX, translated_config
from packager.models.reference import parse_model_reference
from packager.models.safetensors import read_weights_header
from tests.support.cases import cases
from tests.support.doubles.models import write_json, write_safetensors

LAYER = {
    "attention.wq": (8, 8),
    "attention.wk": (4, 8),
    "attention.wv": (4, 8),
    "attention.wo": (8, 8),
    "feed_forward.w1": (16, 8),
    "feed_forward.w2": (8, 16),
    "feed_forward.w3": (16, 8),
    "attention_norm": (8,),
    "ffn_norm": (8,),
}
OUTSIDE = {"tok_embeddings": (32, 8), "norm": (8,), "output": (32, 8)}
PARAMS = {
    "dim": 8, "n_layers": 2, "head_dim": 4, "hidden_dim": 16, "n_heads": 2, "n_kv_heads": 1,
    "norm_eps": 1e-5, "vocab_size": 32, "rope_theta": 1e6,
}  # fmt: skip


@pytest.fixture
def native(tmp_path: Path) -> Path:
    write_json(tmp_path / "params.json", PARAMS)
    write_json(tmp_path / "tekken.json", {})
    (tmp_path / "tokenizer.model.v3").write_bytes(b"x")
    for number in (1, 2):
        shapes = {f"layers.{number - 1}.{name}": shape for name, shape in LAYER.items()}
        shapes |= OUTSIDE if number == 1 else {}
        tensors = {f"{name}.weight": ("BF16", shape) for name, shape in shapes.items()}
        write_safetensors(tmp_path / f"consolidated-{number:05}-of-00002.safetensors", tensors)
    return tmp_path


def facts(directory: Path) -> ModelFiles:
    return LocalSource().facts(parse_model_reference(str(directory)))


def test_the_format_is_packaged_as_it_is_and_planned_in_the_words_of_transformers(
    native: Path,
) -> None:
    found = facts(native)
    profile, findings = make_profile(found)

    assert not errors_in(findings)
    assert (profile.architecture, profile.layers, profile.kv_heads) == ("MistralForCausalLM", 2, 1)
    assert (profile.max_positions, profile.head_dim) == (128_000, 4)
    assert profile.kv_bytes_per_token == 2 * 2 * 4 * 2
    assert found.left_out == {
        "tokenizer.model.v3": "tokenizer beside 'tekken.json', which engines read"
    }
    index = next(file.content for file in found.files if file.path == INDEX)
    assert isinstance(index, Inline)
    assert json.loads(index.data)["weight_map"]["norm.weight"].startswith("consolidated-00001")


def test_weights_that_are_split_keep_names_that_the_loader_looks_for(native: Path) -> None:
    found = facts(native)
    reader = BlobReader()
    files = split_large(
        found.files, lambda file: read_weights_header(file, reader.read), limit=8000
    )

    weights = [file for file in files if file.role == "weights"]
    assert [file.path for file in files if file.path.endswith("index.json")] == [INDEX]
    assert all(file.path.startswith("consolidated-0000") for file in weights)
    assert all(isinstance(file.content, Blob) or file.size < 8000 for file in weights)


@cases("translated")
def test_keys_are_translated_as_engines_do(params: dict[str, Any], expect: dict[str, Any]) -> None:
    found = translated_config({**PARAMS, **params}, {"max_position_embeddings": 4096, "x": 1})

    assert found["x"] == 1
    assert {key: found.get(key) for key in expect} == expect

"""Files of sentence-transformers: packaged in their places, read, and refused where they break."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from packager.core.errors import ModelRefused
from packager.core.model import ModelFiles
from packager.models.architectures.profile import make_profile
from packager.models.local import LocalSource
from packager.models.reference import parse_model_reference
from tests.support.cases import cases_of
from tests.support.doubles.models import write_safetensors

cases = cases_of(__file__)

BERT = {
    "architectures": ["BertModel"],
    "model_type": "bert",
    "hidden_size": 8,
    "num_attention_heads": 1,
    "num_hidden_layers": 1,
    "intermediate_size": 16,
    "vocab_size": 32,
    "max_position_embeddings": 512,
}
CLASSES = {
    "old": "sentence_transformers.models.",
    "new": "sentence_transformers.sentence_transformer.modules.x.",
}


def write(directory: Path, files: dict[str, Any], config: dict[str, Any]) -> Path:
    """Write a model with `files` beside it; None leaves one out, a text is written as it is."""
    directory.mkdir()
    (directory / "config.json").write_text(json.dumps(BERT | config))
    (directory / "tokenizer.json").write_text("{}")
    write_safetensors(directory / "model.safetensors", {"embeddings.weight": ("F32", (32, 8))})
    for path, content in files.items():
        place = directory / path
        place.parent.mkdir(exist_ok=True)
        if path.endswith(".safetensors"):
            write_safetensors(place, {"linear.weight": ("F32", (4, 8))})
        else:
            place.write_text(content if isinstance(content, str) else json.dumps(content))
    return directory


def facts(directory: Path) -> ModelFiles:
    return LocalSource().facts(parse_model_reference(str(directory)))


def rows(*kinds: str, of: str = "old") -> list[dict[str, object]]:
    paths = ["" if kind == "Transformer" else f"{at}_{kind}" for at, kind in enumerate(kinds)]
    return [
        {"idx": at, "name": str(at), "path": path, "type": CLASSES[of] + kind}
        for at, (kind, path) in enumerate(zip(kinds, paths, strict=True))
    ]


@pytest.mark.parametrize("of", CLASSES)
@cases("pooled")
def test_pooling_is_read_in_every_spelling(
    tmp_path: Path, of: str, config: dict[str, Any], pooled: str
) -> None:
    files = {
        "modules.json": rows("Transformer", "Pooling", "Normalize", of=of),
        "1_Pooling/config.json": config,
        "config_sentence_transformers.json": {"prompts": {"query": "q: "}, "truncate_dim": 4},
        "sentence_bert_config.json": {"max_seq_length": 256},
    }
    profile, findings = make_profile(facts(write(tmp_path / "m", files, {})))
    pooling = profile.pooling

    assert pooling is not None
    assert not [one for one in findings if one.severity == "error"]
    assert (pooling.task, pooling.pooled, pooling.normalizes) == ("embed", pooled, True)
    assert (pooling.truncates, pooling.size, pooling.is_causal) == (4, 8, False)
    assert (profile.max_positions, profile.kv_bytes_per_token) == (256, 0)
    assert pooling.modules is not None
    assert pooling.modules.prompts == {"query": "q: "}


def test_every_file_that_carries_meaning_is_packaged_in_its_place(tmp_path: Path) -> None:
    files = {
        "modules.json": rows("Transformer", "Pooling", "Dense", "Normalize"),
        "1_Pooling/config.json": {"pooling_mode": "mean"},
        "2_Dense/config.json": {"in_features": 8, "out_features": 4},
        "2_Dense/model.safetensors": None,
        "2_Dense/pytorch_model.bin": "x",
        "onnx/model.onnx": "x",
    }
    model = facts(write(tmp_path / "m", files, {}))
    profile, _ = make_profile(model)

    assert [file.path for file in model.files if "/" in file.path] == [
        "1_Pooling/config.json",
        "2_Dense/config.json",
        "2_Dense/model.safetensors",
    ]
    assert profile.pooling is not None
    assert profile.pooling.size == 4
    size = (tmp_path / "m/2_Dense/model.safetensors").stat().st_size
    assert profile.weight_bytes == 32 * 8 * 4 + size  # as a file: its header counts


@cases("broken", match="", kind="ModelRefused")
def test_a_broken_part_is_refused_by_its_name(
    tmp_path: Path, files: dict[str, Any], match: str, kind: str
) -> None:
    with pytest.raises(ModelRefused, match=match) as caught:
        facts(write(tmp_path / "m", files, {}))
    assert caught.value.hint
    assert type(caught.value).__name__ == kind


@cases("unsupported")
def test_what_no_engine_does_is_refused(
    tmp_path: Path, kinds: tuple[str, ...], config: dict[str, Any], said: str
) -> None:
    files = {
        "modules.json": rows(*kinds),
        **{f"{n}_{k}/config.json": config for n, k in enumerate(kinds) if k != "Transformer"},
    }
    _, findings = make_profile(facts(write(tmp_path / "m", files, {})))

    assert {one.code for one in findings} == {"pooling-unsupported"}
    assert said in findings[0].message


@cases("tasks", files={}, is_causal=False, labels=0)
def test_the_task_is_recognised_by_class_files_and_labels(
    tmp_path: Path,
    config: dict[str, Any],
    files: dict[str, Any],
    task: str,
    is_causal: bool,
    labels: int,
) -> None:
    written = {"1_Pooling/config.json": {"pooling_mode": "lasttoken"}} if files else {}
    profile, _ = make_profile(facts(write(tmp_path / "m", {**written, **files}, config)))
    pooling = profile.pooling

    assert (pooling.task if pooling else "") == task
    if pooling is not None:
        assert (pooling.is_causal, pooling.labels) == (is_causal, labels)
        assert bool(profile.kv_bytes_per_token) is is_causal


def test_a_reranker_with_a_decoders_class_is_recognised_by_its_card(tmp_path: Path) -> None:
    config = {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "head_dim": 8}
    card = {"README.md": "---\npipeline_tag: text-ranking\n---\n"}
    ranks, _ = make_profile(facts(write(tmp_path / "ranks", card, config)))
    chats, _ = make_profile(facts(write(tmp_path / "chats", {}, config)))

    assert ranks.pooling is not None
    assert ranks.pooling.judges
    assert chats.pooling is None

"""Which files are packaged, by their names, and what for."""

from __future__ import annotations

import pytest

from packager.models.refusals import Incomplete, OnlyPickle, OtherFormat
from packager.models.rules import (
    FileSelection,
    ListedFile,
    choose_files,
    find_single,
    refuse_incomplete,
    role_of,
    why_left_out,
)

MODEL = ("config.json", "tokenizer.json", "model.safetensors")


def chosen(*paths: str) -> FileSelection:
    return choose_files({path: ListedFile(size=1) for path in paths})


@pytest.mark.parametrize(
    ("path", "role"),
    [
        ("config.json", "config"),
        ("generation_config.json", "config"),
        ("preprocessor_config.json", "config"),
        ("model.safetensors.index.json", "config"),
        ("tokenizer.json", "tokenizer"),
        ("tokenizer_config.json", "tokenizer"),
        ("tokenizer.model", "tokenizer"),
        ("vocab.json", "tokenizer"),
        ("merges.txt", "tokenizer"),
        ("special_tokens_map.json", "tokenizer"),
        ("chat_template.jinja", "tokenizer"),
        ("additional_chat_templates/tools.jinja", "tokenizer"),
        ("model-00001-of-00002.safetensors", "weights"),
        ("LICENSE", "other"),
        ("LICENSE.txt", "other"),
        ("NOTICE", "other"),
        ("USE_POLICY.md", "other"),
        ("README.md", "other"),
        ("1_Pooling/config.json", "config"),
    ],
)
def test_files_for_serving_are_packaged(path: str, role: str) -> None:
    assert why_left_out(path) == ""
    assert role_of(path) == role


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        (".gitattributes", "hidden"),
        (".cache/huggingface/download/config.json.metadata", "hidden"),
        ("pytorch_model.bin", "pickle: can run code when it is loaded"),
        ("consolidated.00.pth", "pickle: can run code when it is loaded"),
        ("Model.CKPT", "pickle: can run code when it is loaded"),
        ("embeddings.npy", "pickle: can run code when it is loaded"),
        ("original/params.json", "copy of the model in another format"),
        ("onnx/config.json", "copy of the model in another format"),
        ("model-q4.gguf", "copy of the model in another format"),
        ("tf_model.h5", "copy of the model in another format"),
        ("flax_model.msgpack", "copy of the model in another format"),
        ("modeling_custom.py", "code is not packaged"),
        ("install.sh", "code is not packaged"),
        ("requirements.txt", "would install or configure something in the container"),
        ("serving.properties", "would install or configure something in the container"),
        ("optimizer.pt", "training state"),
        ("scheduler.pt", "training state"),
        ("training_args.bin", "training state"),
        ("trainer_state.json", "training state"),
        ("train_command.txt", "training state"),
        ("val_metrics.json", "training state"),
        ("rng_state_0.pth", "training state"),
        ("checkpoint-500/model.safetensors", "training state"),
        ("model.safetensors.lock", "temporary or lock file"),
        ("model.safetensors.incomplete", "temporary or lock file"),
        ("config.json~", "temporary or lock file"),
        ("pytorch_model.bin.index.json", "index of weights that are not packaged"),
        ("vae/model.safetensors", "weights in a sub-directory: engines do not read them"),
        ("picture.png", "not needed for serving"),
        ("paper.pdf", "not needed for serving"),
        ("docs/guide.md", "not needed for serving"),
        ("archive.tar.gz", "not needed for serving"),
    ],
)
def test_other_files_are_left_out_with_a_reason(path: str, reason: str) -> None:
    assert why_left_out(path) == reason


def test_a_licence_of_many_megabytes_is_no_licence() -> None:
    assert why_left_out("LICENSE", 2_000_000) == "too long for a document"


def test_a_gigabyte_of_text_is_no_tokenizer() -> None:
    reason = "too large for configuration or a tokenizer"
    assert why_left_out("corpus.txt", 10**9) == reason


def test_pickled_weights_beside_safetensors_are_left_out() -> None:
    choice = chosen(*MODEL, "pytorch_model.bin")
    refuse_incomplete(choice)
    assert choice.left_out == {"pytorch_model.bin": "pickle: can run code when it is loaded"}


def test_only_pickled_weights_are_refused_with_a_way_to_convert_them() -> None:
    choice = chosen("config.json", "tokenizer.json", "pytorch_model.bin", "training_args.bin")
    with pytest.raises(OnlyPickle, match=r"pickle files only: 'pytorch_model\.bin'$") as caught:
        refuse_incomplete(choice)
    assert "save_pretrained" in caught.value.hint
    assert "sandbox" in caught.value.hint


def test_training_state_is_not_mistaken_for_weights() -> None:
    with pytest.raises(Incomplete, match="no weights"):
        refuse_incomplete(chosen("config.json", "tokenizer.json", "optimizer.pt"))


def test_only_weights_of_another_format_are_refused() -> None:
    with pytest.raises(OtherFormat, match=r"only 'model\.gguf'"):
        refuse_incomplete(chosen("config.json", "tokenizer.json", "model.gguf"))


def test_a_model_without_configuration_is_refused() -> None:
    with pytest.raises(Incomplete, match=r"no 'config\.json'") as caught:
        refuse_incomplete(chosen("tokenizer.json", "model.safetensors"))
    assert "save_pretrained" in caught.value.hint


def test_a_model_one_directory_deeper_is_pointed_at() -> None:
    with pytest.raises(Incomplete) as caught:
        refuse_incomplete(chosen("llama/config.json", "llama/tokenizer.json"))
    assert "'llama'" in caught.value.hint


@pytest.mark.parametrize(
    "tokenizer",
    [
        ("tokenizer.json",),
        ("tokenizer.model",),
        ("vocab.json", "merges.txt", "tokenizer_config.json"),
    ],
)
def test_each_form_of_tokenizer_is_enough(tokenizer: tuple[str, ...]) -> None:
    refuse_incomplete(chosen("config.json", "model.safetensors", *tokenizer))


def test_half_a_tokenizer_is_refused() -> None:
    with pytest.raises(Incomplete, match="no tokenizer") as caught:
        refuse_incomplete(chosen("config.json", "model.safetensors", "vocab.json"))
    assert "tokenizer.save_pretrained" in caught.value.hint


def test_an_adapter_is_not_a_model() -> None:
    with pytest.raises(Incomplete, match="is an adapter") as caught:
        find_single(("adapter_model.safetensors",))
    assert "merge_and_unload" in caught.value.hint


def test_shards_without_an_index_are_refused() -> None:
    with pytest.raises(Incomplete, match="has neither 'model"):
        find_single(("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"))

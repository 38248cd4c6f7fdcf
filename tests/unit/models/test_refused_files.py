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
from tests.support.cases import cases_of

cases = cases_of(__file__)

MODEL = ("config.json", "tokenizer.json", "model.safetensors")


def chosen(*paths: str) -> FileSelection:
    return choose_files({path: ListedFile(size=1) for path in paths})


@cases("files_for_serving_are_packaged")
def test_files_for_serving_are_packaged(path: str, role: str) -> None:
    assert why_left_out(path) == ""
    assert role_of(path) == role


@cases("other_files_are_left_out_with_a_reason")
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


@cases("each_form_of_tokenizer_is_enough")
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

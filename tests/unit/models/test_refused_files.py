"""Which files are packaged, by their names, and what for."""

from __future__ import annotations

import pytest

from packager.models.refusals import Incomplete, OtherFormat
from packager.models.rules import (
    FileSelection,
    ListedModelFile,
    choose_files,
    find_unlisted,
    refuse_incomplete,
    role_of,
    why_left_out,
)
from tests.support.cases import cases
from tests.support.refusals import raises_code

MODEL = ("config.json", "tokenizer.json", "model.safetensors")


def chosen(*paths: str) -> FileSelection:
    return choose_files({path: ListedModelFile(size=1) for path in paths})


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
    with raises_code("OnlyPickle", match=r"pickle files only: 'pytorch_model\.bin'$") as caught:
        refuse_incomplete(choice)
    assert "save_pretrained" in caught.value.hint
    assert "sandbox" in caught.value.hint


@cases("incomplete", error="Incomplete", hint="")
def test_what_lacks_a_part_is_refused_with_a_hint(
    files: tuple[str, ...], error: str, said: str, hint: str
) -> None:
    with pytest.raises((Incomplete, OtherFormat), match=said) as caught:
        refuse_incomplete(chosen(*files))
    assert type(caught.value).__name__ == error
    assert hint in caught.value.hint


@cases("other_kinds")
def test_a_directory_of_another_kind_is_named_with_what_to_do(
    files: tuple[str, ...], said: str, hint: str
) -> None:
    with raises_code("OtherKind", match=said) as caught:
        refuse_incomplete(chosen(*files))
    assert hint in caught.value.hint


@cases("weights_without_an_index")
def test_weights_are_found_without_an_index(
    files: tuple[str, ...], served: tuple[str, ...]
) -> None:
    assert find_unlisted(files) == served


@cases("unsure")
def test_weights_that_are_not_sure_are_refused(
    files: tuple[str, ...], said: str, hint: str
) -> None:
    with pytest.raises(Incomplete, match=said) as caught:
        find_unlisted(files)
    assert hint in caught.value.hint


@cases("units", packaged=())
def test_a_unit_below_a_model_is_packaged_whole_or_not_at_all(
    files: tuple[str, ...], packaged: tuple[str, ...], left_out: dict[str, str]
) -> None:
    choice = chosen(*MODEL, *files)

    assert choice.candidates == ("model.safetensors",)
    assert tuple(one for one in choice.small if "/" in one) == packaged
    assert choice.left_out == left_out


@cases("each_form_of_tokenizer_is_enough")
def test_each_form_of_tokenizer_is_enough(tokenizer: tuple[str, ...]) -> None:
    refuse_incomplete(chosen("config.json", "model.safetensors", *tokenizer))

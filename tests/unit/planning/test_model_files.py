"""What of a model's files stays out, and what an engine does not read, is said in the plan."""

from __future__ import annotations

from dataclasses import replace

import pytest

from packager.core.image import Inline
from packager.core.model import ModelFile, ModelFiles, ModelRef
from packager.core.traits import EngineTraits
from packager.planning.model_files import check_left_out, check_tokenizer

VLLM = EngineTraits(who="vLLM 0.33.0", tekken_option="tokenizer-mode=mistral")
MODEL = ModelFiles(
    ref=ModelRef(source="local", name="m"),
    files=(ModelFile(path="tekken.json", role="tokenizer", content=Inline(b"{}")),),
    config={},
    tensors=(),
)


def test_files_that_are_left_out_are_said_by_reason() -> None:
    left = {".git/HEAD": "hidden", "a.py": "code is not packaged", "b.sh": "code is not packaged"}

    said = [one.message for one in check_left_out(replace(MODEL, left_out=left))]

    assert said == ["2 files of the model left out (code is not packaged): a.py, b.sh"]


@pytest.mark.parametrize(
    ("traits", "options", "hint"),
    [
        (VLLM, {"tokenizer-mode": "mistral"}, None),
        (VLLM, {"tokenizer_mode": "mistral"}, None),
        (VLLM, {}, "--engine-option tokenizer-mode=mistral"),
        (EngineTraits(who="TGI 3.3"), {}, "--family vllm"),
    ],
)
def test_a_tokenizer_of_mistral_s_is_for_engines_that_read_it(
    traits: EngineTraits, options: dict[str, str], hint: str | None
) -> None:
    found = [*check_tokenizer(MODEL, traits, options)]

    assert [hint in one.hint for one in found] == ([] if hint is None else [True])

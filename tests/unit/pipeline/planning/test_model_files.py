"""What of a model's files stays out, and what an engine does not read, is said in the plan."""

from __future__ import annotations

from dataclasses import replace

import pytest

from packager.core.findings import errors_in
from packager.core.image import Inline
from packager.core.model import ModelFile, ModelFiles, ModelRef
from packager.core.request import BuildRequest
from packager.core.traits import EngineTraits
from packager.engines.vllm.traits import NATIVE_OPTIONS
from packager.pipeline.planning.model_files import check_files_read, check_left_out, format_options

VLLM = EngineTraits(
    who="vLLM 0.33.0", tekken_options=NATIVE_OPTIONS[2:], native_options=NATIVE_OPTIONS
)
TGI = EngineTraits(who="TGI 3.3")
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


NATIVE = replace(MODEL, file_format="mistral")
ASKED = BuildRequest(model="m", instance="local")


@pytest.mark.parametrize(
    ("model", "traits", "options", "told", "hints"),
    [
        (MODEL, VLLM, {}, ["tokenizer-mode"], []),
        (MODEL, VLLM, {"tokenizer_mode": "mistral"}, [], []),
        (MODEL, VLLM, {"tokenizer-mode": "hf"}, [], ["leave the option out"]),
        (MODEL, TGI, {}, [], ["--family vllm"]),
        (NATIVE, VLLM, {"config-format": "mistral"}, ["load-format", "tokenizer-mode"], []),
        (NATIVE, TGI, {}, [], ["--family vllm"]),
        (NATIVE, replace(VLLM, native_options=()), {}, [], ["config.json"]),
    ],
)
def test_files_of_mistral_s_are_for_engines_that_read_them(
    model: ModelFiles,
    traits: EngineTraits,
    options: dict[str, str],
    told: list[str],
    hints: list[str],
) -> None:
    asked = BuildRequest(model="m", instance="local", engine_options=options or None)

    wrong = errors_in(tuple(check_files_read(model, traits, asked)))

    assert [hint in one.hint for one, hint in zip(wrong, hints, strict=True)] == [True] * len(hints)
    assert [name for name, _ in format_options(model, traits, options)] == told


@pytest.mark.parametrize("field", ["quantize", "load_format"])
def test_what_works_on_files_of_transformers_is_refused_for_mistral_s(field: str) -> None:
    asked = ASKED.model_copy(update={field: "fp8"})

    assert errors_in(tuple(check_files_read(NATIVE, VLLM, asked)))

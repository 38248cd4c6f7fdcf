"""The step that compares two checkpoints: what it needs, is told, and is known by."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from artifact_cache.key import key_of
from packager.core.image import FileRange, Inline
from packager.core.model import ModelFile, ModelFiles, ModelRef
from packager.core.quality import Evaluation
from packager.core.recipe import Step
from packager.core.samples import Sample, Samples
from packager.core.tool import ToolFacts
from packager.optimize.evaluate.step import evaluation_step
from packager.optimize.keys.documents import QualityReportKey
from tests.support.cases import Case, cases
from tests.support.known import known

TOOL = ToolFacts(
    name="evaluate", worker="a" * 64, requirements="b" * 64, packages={"torch": "2.13.0+cpu"}
)
TEXTS = Samples(source="texts.jsonl", samples=(Sample(text="one"), Sample(text="two")))


def files(letter: str, size: int = 10) -> tuple[ModelFile, ...]:
    return (
        ModelFile(
            path="model.safetensors",
            role="weights",
            content=Inline(b"x" * size),
            sha256=letter * 64,
        ),
    )


def model(letter: str = "c", **config: Any) -> ModelFiles:
    return ModelFiles(
        ref=ModelRef(source="local", name="model"),
        files=files(letter),
        config={"vocab_size": 1000, "max_position_embeddings": 256, **config},
        tensors=(),
    )


def step(**changes: Any) -> Step:
    given = {
        "base": model(),
        "candidate": files("d"),
        "samples": TEXTS,
        "asked": Evaluation(),
        "tool": TOOL,
    }
    return evaluation_step(**{**given, **changes})


def test_the_worker_is_told_everything_and_finds_all_three_inputs() -> None:
    asked = {"max_tokens": 128, "noise_texts": 2, "prompts": 3, "answer_tokens": 4}
    made = step(asked=Evaluation(**asked))

    assert dict(made.parameters) == {**asked, "dtype": "float32"}
    assert set(made.inputs) == {"base", "candidate", "samples"}
    assert (made.tool, made.gives) == ("evaluate", "quality")
    assert dict(made.env) == {"OMP_NUM_THREADS": "1"}


def test_texts_are_never_longer_than_the_model_reads() -> None:
    assert step(asked=Evaluation(max_tokens=9999)).parameters["max_tokens"] == 256
    assert step(base=model(max_position_embeddings=None)).parameters["max_tokens"] == 512


@cases("in_the_key")
def test_whatever_reaches_the_figures_is_in_the_key(case: Case) -> None:
    other = step(
        base=model(case.get("base", "c")),
        candidate=files(case.get("candidate", "d")),
        samples=replace(TEXTS, samples=TEXTS.samples[: case.get("samples")]),
        asked=Evaluation(**case.get("asked", {})),
        tool=replace(TOOL, **case.get("tool", {})),
    )

    before, after = known(step().key), known(other.key)

    assert isinstance(before, QualityReportKey)
    assert key_of(before) == key_of(known(step().key))
    assert key_of(before) != key_of(after)


def test_without_digests_there_is_no_key() -> None:
    unread = tuple(replace(file, sha256="") for file in files("d"))

    assert step(candidate=unread).key is None


def test_large_models_are_computed_in_sixteen_bits_and_need_both_in_memory() -> None:
    content = FileRange(path="/nowhere", offset=0, length=9_000_000_000)
    sparse = replace(files("c")[0], content=content)
    small, large = step(), step(base=replace(model(), files=(sparse,)))

    assert (small.parameters["dtype"], large.parameters["dtype"]) == ("float32", "bfloat16")
    assert 18e9 < large.needs.memory_bytes < 20e9

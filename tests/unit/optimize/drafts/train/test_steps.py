"""The steps that train a head: what they are told, need, and are known by."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from artifact_cache.key import key_of
from packager.core.image import Inline
from packager.core.model import ModelFile, ModelFiles
from packager.core.recipe import Step
from packager.core.tool import ToolFacts
from packager.core.training import HeadTraining, TrainingTexts
from packager.models.architectures.profile import make_profile
from packager.optimize.drafts.train.steps import answers_step, texts_of, training_step
from packager.optimize.drafts.training_checks import completed
from packager.optimize.keys.documents import DraftHeadKey, ModelAnswersKey
from tests.support.cases import as_type, read_tables
from tests.support.headers import LLAMA_3_8B, TINY, model_of
from tests.support.heads import medusa_of_vllm

TABLES = read_tables(__file__)

TOOL = ToolFacts(
    name="draft-heads", worker="a" * 64, requirements="b" * 64, packages={"torch": "2.13.0+cpu"}
)
TEXTS = as_type(TABLES["texts"], TrainingTexts)
EAGLE, MEDUSA = HeadTraining(method="eagle3"), HeadTraining(method="medusa")


def pinned(model: ModelFiles, letter: str = "c") -> ModelFiles:
    file = ModelFile(
        path="model.safetensors", role="weights", content=Inline(b"x" * 10), sha256=letter * 64
    )
    return replace(model, files=(file,))


def step(asked: HeadTraining = EAGLE, **changes: Any) -> Step:
    model = changes.pop("model", pinned(model_of(TINY)))
    head = changes.pop("head", None)
    profile, _ = make_profile(model)
    texts = texts_of(changes.pop("texts", TEXTS))
    asked = completed(asked, profile, head)
    return training_step(model, profile, texts, asked, head, changes.pop("tool", TOOL), **changes)


def answers(asked: HeadTraining = EAGLE, **changes: Any) -> Step:
    model = changes.pop("model", pinned(model_of(TINY)))
    profile, _ = make_profile(model)
    return answers_step(model, profile, texts_of(TEXTS), asked, TOOL)


def key(made: Step) -> str:
    assert made.key is not None
    return key_of(made.key)


def test_the_worker_is_told_everything() -> None:
    made = step(replace(EAGLE, max_steps=60, seed=3))

    assert dict(made.parameters) == TABLES["eagle3_parameters"]
    assert [file.path for file in made.inputs["samples"].files] == ["train.jsonl", "held-out.jsonl"]
    assert (made.tool, made.gives, made.resumable) == ("draft-heads", "head", True)
    assert dict(made.env) == {"OMP_NUM_THREADS": "1"}


def test_medusa_heads_are_told_nothing_of_layers_that_they_do_not_read() -> None:
    made = step(MEDUSA)

    assert made.parameters["task"] == "medusa"
    assert "aux_layers" not in made.parameters


def test_the_model_is_asked_to_answer() -> None:
    made = answers(replace(EAGLE, answer_tokens=64, temperature=0.7, seed=5))

    assert dict(made.parameters) == TABLES["answers_parameters"]
    assert isinstance(made.key, ModelAnswersKey)
    assert (made.gives, made.resumable) == ("answers", True)


def test_equal_inputs_give_equal_keys_and_every_other_input_another() -> None:
    others = {
        "method": step(MEDUSA),
        "tokens": step(replace(EAGLE, speculative_tokens=4)),
        "layers": step(replace(EAGLE, layers=2)),
        "aux": step(replace(EAGLE, aux_layers=(0, 1, 2))),
        "vocabulary": step(replace(EAGLE, draft_vocab_size=1000)),
        "epochs": step(replace(EAGLE, epochs=5)),
        "steps": step(replace(EAGLE, max_steps=5)),
        "rate": step(replace(EAGLE, learning_rate=0.1)),
        "batch": step(replace(EAGLE, batch_tokens=100)),
        "length": step(replace(EAGLE, max_tokens=100)),
        "seed": step(replace(EAGLE, seed=1)),
        "model": step(model=pinned(model_of(TINY), "d")),
        "texts": step(texts=replace(TEXTS, train=TEXTS.held_out)),
        "held out": step(texts=replace(TEXTS, held_out=TEXTS.train)),
        "tool": step(tool=replace(TOOL, worker="e" * 64)),
    }

    assert key(step()) == key(step())
    keys = {name: key(made) for name, made in others.items()}
    assert len({key(step()), *keys.values()}) == len(keys) + 1, keys


def test_the_head_that_is_trained_on_is_part_of_the_key() -> None:
    one = pinned(medusa_of_vllm(256, 2048), "e")
    other = pinned(medusa_of_vllm(256, 2048), "f")

    assert len({key(step(MEDUSA)), key(step(MEDUSA, head=one)), key(step(MEDUSA, head=other))}) == 3
    made = step(MEDUSA, head=one)
    assert isinstance(made.key, DraftHeadKey)
    assert made.key.weights.draft is not None
    assert made.key.weights.draft == {
        "config.json": "724c9e83ecc7830537a7f72f26876462979a17d5660e8e1a937b2e92e5168fe3",
        "model.safetensors": "e" * 64,
    }
    assert [file.path for file in made.inputs["head"].files] == ["config.json", "model.safetensors"]


def test_who_answered_is_not_asked_twice() -> None:
    """The answers are texts: that a model wrote them, and how, is in their own key."""
    assert key(step(replace(EAGLE, answers="data", answer_tokens=9))) == key(step())


def test_without_a_digest_of_the_model_nothing_is_cached() -> None:
    model = model_of(TINY)
    file = ModelFile(path="model.safetensors", role="weights", content=Inline(b"x"))

    assert step(model=replace(model, files=(file,))).key is None
    assert answers(model=replace(model, files=(file,))).key is None


@pytest.mark.parametrize("asked", [EAGLE, MEDUSA])
def test_estimates_grow_with_the_model(asked: HeadTraining) -> None:
    small, large = step(asked).needs, step(asked, model=pinned(model_of(LLAMA_3_8B))).needs

    assert 1e9 < small.memory_bytes < 3e9
    assert 16e9 < large.memory_bytes < 60e9


def test_large_models_compute_in_the_precision_that_they_have() -> None:
    assert step(model=pinned(model_of(LLAMA_3_8B))).parameters["dtype"] == "bfloat16"


def test_a_head_trained_on_more_gpus_is_another() -> None:
    assert len({key(step(gpus=gpus)) for gpus in (0, 1, 4)}) == 3


def test_gpus_are_asked_for_and_use_as_many_threads_as_they_like() -> None:
    assert step(gpus=2).gpus == 2
    assert dict(step(gpus=2).env) == {}

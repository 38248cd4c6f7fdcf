"""Training a draft head: what is asked for, and what came of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from packager.core.findings import Finding
from packager.core.recipe import StepOutcome
from packager.core.samples import Samples, choose_samples
from packager.errors import UsageError

Method = Literal["eagle3", "medusa"]
Answers = Literal["model", "data"]
ANSWER, TRAIN = "answers", "train"  # the steps
RESULT = "training.json"
TEXTS = ("train.jsonl", "held-out.jsonl")

# Where the request says nothing.  EAGLE-3 is trained on as many tokens ahead as vLLM's examples
# propose; Medusa's authors train up to five heads.
TOKENS: dict[Method, int] = {"eagle3": 3, "medusa": 3}
LAYERS: dict[Method, int] = {"eagle3": 1, "medusa": 1}
# Those that speculators and Medusa's authors train with.
LEARNING_RATE: dict[Method, float] = {"eagle3": 1e-3, "medusa": 1e-3}
EPOCHS, BATCH_TOKENS, MAX_TOKENS, ANSWER_TOKENS = 10, 2048, 2048, 256
HELD_OUT = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadTraining:
    """How a head is trained, which decides what it becomes; 0: as the method usually has it."""

    method: Method
    trainer: str = "speculators"
    speculative_tokens: int = 0  # how many tokens ahead it learns to propose
    layers: int = 0  # decoder layers of EAGLE-3, residual blocks of a Medusa head
    aux_layers: tuple[int, ...] = ()  # of the model, whose hidden states EAGLE-3 reads
    draft_vocab_size: int = 0  # of EAGLE-3; 0: the model's
    epochs: int = EPOCHS
    max_steps: int = 0  # 0: as many as the epochs have
    learning_rate: float = 0.0
    batch_tokens: int = BATCH_TOKENS  # positions that one step of the optimizer sees
    max_tokens: int = MAX_TOKENS  # each text is cut to so many
    seed: int = 0
    answers: Answers = "model"  # who wrote what the head learns to foresee
    answer_tokens: int = ANSWER_TOKENS
    temperature: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingTexts:
    """What a head learns from, and what is kept aside to measure it with."""

    train: Samples
    held_out: Samples


def split_texts(
    found: Samples, others: Samples | None, *, count: int | None, seed: int
) -> TrainingTexts:
    """Take `count` of the texts, or all, and keep a share aside where there are no `others`.

    A text that is measured with is never trained on.  The same texts are kept aside
    whatever the order of the file.
    """
    chosen = choose_samples(found, count or len(found.samples), seed)
    if others is None:
        size = len(chosen.samples)
        aside = max(1, round(HELD_OUT * size), min(8, size // 4))
        others = replace(chosen, samples=chosen.samples[:aside])
    measured = frozenset(others.samples)
    kept = tuple(one for one in chosen.samples if one not in measured)
    if not kept:
        raise UsageError(
            f"{found.source!r} holds no text that is not kept aside to measure the head with",
            hint="name more texts with --data, or others with --held-out",
        )
    return TrainingTexts(train=replace(chosen, samples=kept), held_out=others)


class TrainingReport(BaseModel):
    """What held-out texts say of a head, before and after it was trained.

    Before is a head with random numbers, or the one that was trained on.  `acceptance` gives
    for each proposal the share of positions where it and all before it are the model's own
    choices; an engine that checks all proposals at once then yields `expected_length` tokens
    a step, 1 without a draft.
    """

    # A worker of tomorrow may say more.
    model_config = ConfigDict(defer_build=True, frozen=True, extra="ignore", allow_inf_nan=False)

    method: Method
    texts: int
    tokens: int = Field(description="positions that were trained on")
    held_out_texts: int
    held_out_tokens: int
    epochs: float
    steps: int
    loss_before: float = Field(description="mean over the proposals, in nats")
    loss: float
    acceptance_before: tuple[float, ...]
    acceptance: tuple[float, ...]
    expected_length_before: float
    expected_length: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """A head that fits its model, and how it came to be."""

    asked: HeadTraining  # with what was left open filled in
    report: TrainingReport
    outcomes: tuple[StepOutcome, ...]
    weight_bytes: int
    findings: tuple[Finding, ...] = ()

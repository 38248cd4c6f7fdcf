"""Training of a draft head: settings, texts and report."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from packager.core.errors import UsageError
from packager.core.fields import CommandOption
from packager.core.findings import Finding
from packager.core.growing import conversation_of, join_growing
from packager.core.recipe import StepOutcome
from packager.core.samples import Sample, Samples, choose_samples

Method = Literal["eagle3", "peagle", "medusa", "mtp"]
Trainer = Literal["speculators", "specforge"]
Answers = Literal["model", "data"]
ANSWER, TRAIN = "answers", "train"  # the steps
RESULT = "training.json"
TEXTS = ("train.jsonl", "held-out.jsonl")

# Defaults.  EAGLE-3 is trained on as many tokens ahead as vLLM's examples
# propose; Medusa's authors train up to five heads.
TOKENS: dict[Method, int] = {"eagle3": 3, "peagle": 5, "medusa": 3, "mtp": 3}
LAYERS: dict[Method, int] = {"eagle3": 1, "peagle": 4, "medusa": 1, "mtp": 1}
# Those that speculators and Medusa's authors train with; an MTP head is trained already.
LEARNING_RATE: dict[Method, float] = {"eagle3": 1e-3, "peagle": 1e-3, "medusa": 1e-3, "mtp": 1e-4}
EPOCHS, BATCH_TOKENS, MAX_TOKENS, ANSWER_TOKENS = 10, 2048, 2048, 256
HELD_OUT = 0.05


LARGEST = 2**31 - 1  # what trainers take for a number, and seeds
Positive = Annotated[int, Field(ge=1, le=LARGEST)]
LayerNumber = Annotated[int, Field(ge=0, le=99_999)]


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadTraining:
    """Settings of head training, all part of the key; 0: the method's default.

    The options of `packager draft train` are made from these fields.
    """

    method: Annotated[Method, Field(description="kind of head")]
    trainer: Annotated[
        Trainer,
        Field(
            description="library that trains EAGLE-3 heads; `specforge` is slow without GPUs; "
            "every engine serves the heads of both"
        ),
    ] = "speculators"
    speculative_tokens: Annotated[
        Positive,
        Field(
            description="tokens that the head learns to propose at a time, 3 by default; as many "
            "Medusa heads"
        ),
    ] = 0
    layers: Annotated[
        Positive,
        Field(description="decoder layers of an EAGLE-3 head, residual blocks of a Medusa head"),
    ] = 0
    aux_layers: Annotated[
        tuple[LayerNumber, ...],
        Field(
            description="layers of the model whose hidden states an EAGLE-3 head reads; "
            "`2,n/2,n-3` by default"
        ),
        CommandOption(metavar="N,N,N"),
    ] = ()
    draft_vocab_size: Annotated[
        Positive,
        Field(
            description="tokens, the likeliest ones, that an EAGLE-3 head proposes from; all of "
            "the model's by default"
        ),
    ] = 0
    epochs: Annotated[Positive, Field(description="how often each text is trained on")] = EPOCHS
    max_steps: Annotated[
        Positive,
        Field(description="end after so many steps; as many as the epochs have by default"),
    ] = 0
    learning_rate: Annotated[
        float,
        Field(gt=0, description="learning rate of the optimizer, 0.001 by default, 0.0001 of MTP"),
        CommandOption(metavar="X"),
    ] = 0.0
    batch_tokens: Annotated[
        Positive, Field(description="positions that one step of the optimizer learns from")
    ] = BATCH_TOKENS
    max_tokens: Annotated[
        int, Field(ge=8, le=LARGEST, description="tokens that each text is cut to")
    ] = MAX_TOKENS
    seed: Annotated[
        int,
        Field(ge=0, le=LARGEST, description="seed of the choice of texts and of the head's start"),
    ] = 0
    answers: Annotated[
        Answers,
        Field(
            description="what the head learns from: the model's own answers to the data's prompts "
            "(`model`), or those in the data"
        ),
    ] = "model"
    answer_tokens: Annotated[
        Positive, Field(description="tokens of each of the model's answers at most")
    ] = ANSWER_TOKENS
    temperature: Annotated[
        float,
        Field(ge=0, description="temperature of the model's answers; 0 takes the likeliest token"),
        CommandOption(metavar="T"),
    ] = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingTexts:
    """Texts for training a head, and held-out texts for measuring it."""

    train: Samples
    held_out: Samples


def split_texts(
    found: Samples, others: Samples | None, *, count: int | None, seed: int
) -> TrainingTexts:
    """Split the texts.

    `count` of them, or all, for training, and a share held out without `others`.

    A conversation that is measured with is never trained on, in none of its turns.  The same
    texts are kept aside whatever the order of the file.
    """
    found = replace(found, samples=join_growing(found.samples))
    chosen = choose_samples(found, count or len(found.samples), seed)
    if others is None:
        size = len(chosen.samples)
        aside = max(1, round(HELD_OUT * size), min(8, size // 4))
        others = replace(chosen, samples=_kept_aside(chosen.samples, aside))
    else:
        others = replace(others, samples=join_growing(others.samples))
    measured = {conversation_of(one) for one in others.samples}
    kept = tuple(one for one in chosen.samples if conversation_of(one) not in measured)
    if not kept:
        raise UsageError(
            f"{found.source!r} holds no conversation that is not kept aside to measure the head "
            "with",
            hint="name more texts with --data, or others with --held-out",
        )
    return TrainingTexts(train=replace(chosen, samples=kept), held_out=others)


def _kept_aside(samples: tuple[Sample, ...], count: int) -> tuple[Sample, ...]:
    """Return the first samples, `count` or as many as their conversations have."""
    conversations: set[str] = set()
    aside = 0
    sizes = Counter(map(conversation_of, samples))
    for sample in samples:
        if aside >= count:
            break
        conversation = conversation_of(sample)
        aside += 0 if conversation in conversations else sizes[conversation]
        conversations.add(conversation)
    return tuple(one for one in samples if conversation_of(one) in conversations)


class TrainingReport(BaseModel):
    """Acceptance of a head on held-out texts, before and after training.

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
    kept_step: int | None = Field(
        default=None, description="steps of the head that is kept, the best on held-out texts"
    )
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

"""Steps of head training: the model answers the texts, and the head learns to predict it.

EAGLE-3 is trained with speculators or SpecForge, Medusa heads by a worker of our own.
Both read hidden states of the model that were computed before, with transformers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from packager.core.devices import SMALL_BYTES, SPREAD_OVER, GpuUse
from packager.core.model import ModelFile, ModelFiles, ModelProfile
from packager.core.recipe import Estimate, Step, StepInput, Work
from packager.core.tool import ToolFacts
from packager.core.training import ANSWER, TEXTS, TRAIN, HeadTraining, TrainingTexts
from packager.estimate.performance.amounts import TextAmounts as CountedTexts
from packager.estimate.performance.amounts import answering_work, tokens_of_bytes, training_work
from packager.estimate.performance.effort import time_limit_s
from packager.estimate.sizing.memory import ELEMENT_BYTES
from packager.optimize.drafts.stitch import mtp_tensors
from packager.optimize.keys.documents import DraftHeadKey, ModelAnswersKey
from packager.optimize.keys.parts import Calibration, Invocation, Precision, Speculation, Weights
from packager.optimize.steps.configs import NO_SHAPE, UNREAD
from packager.optimize.steps.inputs import (
    GENERATION,
    config_file,
    samples_file,
    tokenizer_files,
    weight_files,
)
from packager.optimize.steps.key_parts import (
    architecture_digest,
    digest_of_files,
    files_by_path,
    graph_of,
    toolchain_of,
)

TOOLS: Mapping[str, str] = {"speculators": "draft-heads", "specforge": "specforge"}  # by trainer
ANSWERING = "draft-heads"  # the tool that has the model answer

# bfloat16 rounding would affect the training, but large models do not fit in float32.
_FLOAT32_UP_TO_BYTES = 8_000_000_000
_LIBRARIES_BYTES = 1_000_000_000
_ADAM = 4  # copies of the head in 4 bytes: weights, gradients, two moments
_LOGITS = 6  # copies of a step's logits in 4 bytes, at the most
_WORK_SHARE = 1.2  # of the model's bytes on GPUs: the model and its buffers
_OWN_PLACE = frozenset({"max_tokens", "seed", "speculative_tokens", "layers"})  # in the key


def is_large(profile: ModelProfile) -> bool:
    """Check whether a model is worth several threads."""
    return profile.weight_bytes >= SMALL_BYTES


def training_gpu_use(profile: ModelProfile) -> GpuUse:
    """Describe the GPUs that answering and training can use: a model may span several."""
    return GpuUse(
        most=SPREAD_OVER,
        helps=profile.weight_bytes >= SMALL_BYTES,
        all_bytes=_LIBRARIES_BYTES + int(_WORK_SHARE * _model_bytes(profile)),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingInputs:
    """The two files that workers read, and their number of texts."""

    files: tuple[ModelFile, ...]
    count: int


def texts_of(texts: TrainingTexts) -> TrainingInputs:
    """Return the texts as files."""
    both = zip(TEXTS, (texts.train, texts.held_out), strict=True)
    return TrainingInputs(
        files=tuple(samples_file(samples, path) for path, samples in both),
        count=len(texts.train.samples) + len(texts.held_out.samples),
    )


def answers_step(
    model: ModelFiles,
    profile: ModelProfile,
    texts: TrainingInputs,
    asked: HeadTraining,
    tool: ToolFacts,
    *,
    gpus: int = 0,
    threads: int = 1,
) -> Step:
    """Describe having the model answer; the step has a key when all files have digests."""
    parameters = {
        "task": "answers",
        "max_tokens": asked.max_tokens,
        "seed": asked.seed,
        "dtype": _dtype(profile),
        "answer_tokens": asked.answer_tokens,
        "temperature": asked.temperature,
    }
    env = _env(gpus, threads)
    work = answering_work(
        profile,
        _counted(texts, asked),
        answer_tokens=asked.answer_tokens,
        read_bytes=profile.weight_bytes,
        float32=_dtype(profile) == "float32",
    )
    # Stop tokens and sampling follow the model's own settings.
    read = (*_files_read(model), *(file for file in model.files if file.path == GENERATION))
    weights = files_by_path(read)
    key = None
    if weights is not None:
        key = ModelAnswersKey(
            weights=Weights(files=weights, adapters=(), draft=None),
            data=_calibration(texts, asked),
            toolchain=toolchain_of(tool),
            invocation=_invocation(parameters, env, gpus),
        )
    return Step(
        name=ANSWER,
        tool=tool.name,
        gives="answers",
        parameters=parameters,
        inputs={"model": StepInput(files=read), "samples": StepInput(files=texts.files)},
        env=env,
        key=key,
        needs=Estimate(
            memory_bytes=_LIBRARIES_BYTES + 2 * _model_bytes(profile),
            work=work,
            method=ANSWER,
            size_bytes=profile.weight_bytes,
        ),
        gpus=gpus,
        gpu_use=training_gpu_use(profile),
        resumable=True,
        timeout_s=time_limit_s(work),
    )


def training_step(
    model: ModelFiles,
    profile: ModelProfile,
    texts: TrainingInputs,
    asked: HeadTraining,
    head: ModelFiles | None,
    tool: ToolFacts,
    *,
    gpus: int = 0,
    threads: int = 1,
) -> Step:
    """Describe the training; `asked` is completed, `head` the training data."""
    parameters: dict[str, Any] = {
        "task": asked.method,
        "max_tokens": asked.max_tokens,
        "seed": asked.seed,
        "dtype": _dtype(profile),
        "speculative_tokens": asked.speculative_tokens,
        "layers": asked.layers,
        "epochs": asked.epochs,
        "max_steps": asked.max_steps,
        "learning_rate": asked.learning_rate,
        "batch_tokens": asked.batch_tokens,
    }
    if asked.method in ("eagle3", "peagle"):
        parameters["aux_layers"] = list(asked.aux_layers)
        parameters["draft_vocab_size"] = asked.draft_vocab_size
    inputs = {
        "model": StepInput(files=_files_read(model)),
        "samples": StepInput(files=texts.files),
    }
    if head is not None:
        inputs["head"] = StepInput(files=_files_read(head))
    env = _env(gpus, threads)
    own = sum(math.prod(one.shape) for one in mtp_tensors(model).values())
    needs = _needs(profile, texts, asked, own)
    return Step(
        name=TRAIN,
        tool=tool.name,
        gives="head",
        parameters=parameters,
        inputs=inputs,
        env=env,
        key=_head_key(model, texts, asked, head, tool, parameters, env, gpus),
        needs=needs,
        gpus=gpus,
        gpu_use=training_gpu_use(profile),
        resumable=True,
        timeout_s=time_limit_s(needs.work),
    )


def _head_key(
    model: ModelFiles,
    texts: TrainingInputs,
    asked: HeadTraining,
    head: ModelFiles | None,
    tool: ToolFacts,
    parameters: Mapping[str, Any],
    env: Mapping[str, str],
    gpus: int,
) -> DraftHeadKey | None:
    weights = files_by_path(_files_read(model))
    given = files_by_path(_files_read(head)) if head else None
    if weights is None or (head is not None and given is None):
        return None
    return DraftHeadKey(
        graph=graph_of(model.config, UNREAD),
        weights=Weights(files=weights, adapters=(), draft=given),
        precision=Precision(
            dtype=parameters["dtype"],
            weights=None,
            activations=None,
            kv_dtype="auto",
            auto_cast=None,
            auto_cast_dtype=None,
            logits_dtype=parameters["dtype"],
        ),
        speculation=Speculation(
            method=asked.method,
            tokens=asked.speculative_tokens,
            draft_config=architecture_digest(head.config, NO_SHAPE) if head else None,
            heads=asked.speculative_tokens if asked.method == "medusa" else None,
            layers=asked.layers,
            tree=(),
        ),
        calibration=_calibration(texts, asked),
        toolchain=toolchain_of(tool),
        invocation=_invocation(parameters, env, gpus),
    )


def _files_read(model: ModelFiles) -> tuple[ModelFile, ...]:
    """Return the files for the computation, and those for tokenizing."""
    files = model.files
    return (config_file(model.config, UNREAD), *weight_files(files), *tokenizer_files(files))


def _calibration(texts: TrainingInputs, asked: HeadTraining) -> Calibration:
    """Describe both files in the key: figures of held-out texts are part of the result."""
    digest = digest_of_files(texts.files)
    assert digest is not None, "texts are written by us, and answers come out of the cache"
    return Calibration(
        dataset=digest, samples=texts.count, sequence_tokens=asked.max_tokens, seed=asked.seed
    )


def _invocation(parameters: Mapping[str, Any], env: Mapping[str, str], gpus: int) -> Invocation:
    said = {
        name: ",".join(map(str, value)) if isinstance(value, list) else str(value)
        for name, value in sorted(parameters.items())
        if name not in _OWN_PLACE
    }
    said["packager.gpus"] = str(gpus)  # sums over several are in another order
    return Invocation(compiler_args=(), engine_args=said, env=dict(env))


def _env(gpus: int, threads: int) -> dict[str, str]:
    # The order of sums is that of the threads.
    return {} if gpus else {"OMP_NUM_THREADS": str(threads)}


def _dtype(profile: ModelProfile) -> str:
    return "float32" if profile.weight_bytes <= _FLOAT32_UP_TO_BYTES else "bfloat16"


def _model_bytes(profile: ModelProfile) -> int:
    return profile.parameters * (4 if _dtype(profile) == "float32" else ELEMENT_BYTES)


def _needs(profile: ModelProfile, texts: TrainingInputs, asked: HeadTraining, own: int) -> Estimate:
    """Estimate upper bounds: every byte of a text may be a token; `own` are the MTP parameters."""
    hidden, vocabulary = profile.hidden_size, asked.draft_vocab_size or profile.vocab_size
    tokens = sum(file.size for file in texts.files)
    if asked.method == "medusa":
        states = 1
        head = asked.speculative_tokens * hidden * (asked.layers * hidden + profile.vocab_size)
    elif asked.method == "mtp":
        states, head = 1, own + 2 * profile.vocab_size * hidden
    else:
        states = len(asked.aux_layers) + 1
        layer = hidden * (6 * hidden + 3 * profile.intermediate_size)
        head = asked.layers * layer + states * hidden * hidden + 2 * vocabulary * hidden
    logits = (
        _LOGITS * 4 * asked.batch_tokens * profile.vocab_size
    )  # the model's own, beside the head's
    memory = _LIBRARIES_BYTES + _model_bytes(profile) + _ADAM * 4 * head + logits
    disk = tokens * states * hidden * 4 + 6 * 4 * head
    return Estimate(
        memory_bytes=memory,
        disk_bytes=disk,
        work=_work(profile, texts, asked),
        method=f"{TOOLS[asked.trainer]}/{asked.method}",
        size_bytes=profile.weight_bytes,
    )


def _work(profile: ModelProfile, texts: TrainingInputs, asked: HeadTraining) -> tuple[Work, ...]:
    """Count the operations of the head per token, and the tokens of the training."""
    hidden, vocabulary = profile.hidden_size, asked.draft_vocab_size or profile.vocab_size
    proposals = max(1, asked.speculative_tokens)
    if asked.method == "medusa":
        head = proposals * hidden * (max(1, asked.layers) * hidden + profile.vocab_size)
        logits = proposals * profile.vocab_size
    else:
        layer = hidden * (6 * hidden + 3 * profile.intermediate_size)
        head = proposals * (max(1, asked.layers) * layer + vocabulary * hidden)
        head += (len(asked.aux_layers) + 1) * hidden**2 + profile.vocab_size * hidden
        logits = proposals * vocabulary
    counted = _counted(texts, asked)
    seen = asked.epochs * counted.tokens
    if asked.max_steps:
        seen = min(seen, asked.max_steps * asked.batch_tokens)
    return training_work(
        profile,
        counted,
        head_flops=2.0 * head,
        tokens_seen=seen,
        batch_tokens=asked.batch_tokens,
        logits=logits,
        read_bytes=profile.weight_bytes,
        float32=_dtype(profile) == "float32",
    )


def _counted(texts: TrainingInputs, asked: HeadTraining) -> CountedTexts:
    """Estimate the tokens of both files; a text has at most so many."""
    size = sum(file.size for file in texts.files)
    return tokens_of_bytes(size, count=texts.count, max_tokens=asked.max_tokens)

"""Describes comparing a checkpoint with the one it was made of: `containers/tools/evaluate`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from packager.core.devices import SMALL_BYTES, SPREAD_OVER, GpuUse
from packager.core.findings import errors_in
from packager.core.model import ModelFile, ModelFiles
from packager.core.quality import STEP, TOOL, Evaluation
from packager.core.recipe import Estimate, Step, StepInput
from packager.core.samples import Samples
from packager.core.tool import ToolFacts
from packager.estimate.performance.amounts import comparing_work
from packager.estimate.performance.amounts import texts_of as counted_texts
from packager.estimate.performance.effort import time_limit_s
from packager.models.architectures.profile import make_profile
from packager.optimize.steps.configs import UNREAD
from packager.optimize.steps.inputs import (
    CONFIG,
    GENERATION,
    config_file,
    samples_file,
    tokenizer_files,
    weight_files,
)

if TYPE_CHECKING:
    from packager.optimize.keys.documents import QualityReportKey

# Rounding in bfloat16 would hide what eight bits change, but large models are not had in float32.
_FLOAT32_UP_TO_BYTES = 8_000_000_000
_LIBRARIES_BYTES = 700_000_000
_LOGITS = 5  # copies of a text's logits in 4 bytes, at the most


def is_large(base: ModelFiles) -> bool:
    """Check whether comparing with the model is worth several threads."""
    return _weight_bytes(base.files) >= SMALL_BYTES


_WEIGHTS = (".safetensors", ".bin", ".pt")


def evaluation_gpu_use(base: ModelFiles) -> GpuUse:
    """Describe the GPUs that the comparison can use: they hold both models at once."""
    weights = _weight_bytes(base.files)
    return GpuUse(
        most=SPREAD_OVER,
        helps=weights >= SMALL_BYTES,
        all_bytes=_models_bytes(weights, _dtype(weights)) + _LIBRARIES_BYTES,
    )


def evaluation_step(
    base: ModelFiles,
    candidate: tuple[ModelFile, ...],
    samples: Samples,
    asked: Evaluation,
    tool: ToolFacts,
    *,
    gpus: int = 0,
    threads: int = 1,
) -> Step:
    """Describe the run; it has a key when all files have digests."""
    read = (file for file in _files_read(base.files) if file.path != CONFIG)
    base = replace(base, files=(config_file(base.config, UNREAD), *read))
    candidate = _files_read(candidate)
    weights = _weight_bytes(base.files)
    dtype = _dtype(weights)
    longest = _longest(base.config)
    parameters = {
        **asdict(asked),
        "max_tokens": min(asked.max_tokens, longest or asked.max_tokens),
        "dtype": dtype,
    }
    del parameters["seed"]  # it has chosen the samples
    if gpus:
        parameters["device"] = "cuda"  # its sums are others
    env = {"OMP_NUM_THREADS": str(threads)}  # the order of sums is theirs
    models = _models_bytes(weights, dtype) + _weight_bytes(candidate)
    vocabulary = base.config.get("vocab_size")
    logits = (vocabulary if isinstance(vocabulary, int) else 0) * parameters["max_tokens"] * 4
    effort = evaluation_effort(base, samples, asked)
    return Step(
        name=STEP,
        tool=TOOL,
        gives="quality",
        parameters=parameters,
        inputs={
            "base": StepInput(files=base.files),
            "candidate": StepInput(files=candidate),
            "samples": StepInput(files=(samples_file(samples),)),
        },
        env=env,
        key=_key(base.files, candidate, samples, parameters, asked.seed, tool, env),
        needs=replace(effort, memory_bytes=_LIBRARIES_BYTES + models + _LOGITS * logits),
        gpus=gpus,
        gpu_use=evaluation_gpu_use(base),
        timeout_s=time_limit_s(effort.work),
    )


def evaluation_effort(base: ModelFiles, samples: Samples, asked: Evaluation) -> Estimate:
    """Return what comparing with the model computes, whatever the candidate is."""
    profile, findings = make_profile(base)
    if errors_in(findings):
        return Estimate()
    weights = _weight_bytes(base.files)
    work = comparing_work(
        profile,
        counted_texts(samples, asked.max_tokens),
        read_bytes=2 * weights,
        noise_texts=asked.noise_texts,
        prompts=asked.prompts,
        answer_tokens=asked.answer_tokens,
        float32=weights <= _FLOAT32_UP_TO_BYTES,
    )
    memory = _LIBRARIES_BYTES + _models_bytes(weights, _dtype(weights)) + weights
    return Estimate(memory_bytes=memory, work=work, method=TOOL, size_bytes=weights)


def _dtype(weight_bytes: int) -> str:
    return "float32" if weight_bytes <= _FLOAT32_UP_TO_BYTES else "bfloat16"


def _models_bytes(weight_bytes: int, dtype: str) -> int:
    """Bound the bytes of both models with their weights unpacked."""
    return 2 * weight_bytes * (2 if dtype == "float32" else 1)


def _files_read(files: Iterable[ModelFile]) -> tuple[ModelFile, ...]:
    """Return the files that decide a model's answers, without licence and model card."""
    listed = tuple(files)
    settings = (file for file in listed if file.path in (CONFIG, GENERATION))
    return (*settings, *weight_files(listed), *tokenizer_files(listed))


def _key(
    base: Iterable[ModelFile],
    candidate: Iterable[ModelFile],
    samples: Samples,
    parameters: Mapping[str, Any],
    seed: int,
    tool: ToolFacts,
    env: Mapping[str, str],
) -> QualityReportKey | None:
    # Imported here because few builds evaluate.
    from packager.optimize.keys.documents import QualityReportKey
    from packager.optimize.keys.parts import Calibration, Invocation, Weights
    from packager.optimize.steps.key_parts import files_by_path, toolchain_of

    ours, theirs = files_by_path(base), files_by_path(candidate)
    if ours is None or theirs is None:
        return None
    return QualityReportKey(
        weights=Weights(files=ours, adapters=(), draft=None),
        candidate=theirs,
        data=Calibration(
            dataset=samples.digest.removeprefix("sha256:"),
            samples=len(samples.samples),
            sequence_tokens=parameters["max_tokens"],
            seed=seed,
        ),
        toolchain=toolchain_of(tool),
        invocation=Invocation(
            compiler_args=(),
            engine_args={
                name: str(value)
                for name, value in sorted(parameters.items())
                if name != "max_tokens"  # is a field of its own
            },
            env=dict(env),
        ),
    )


def _weight_bytes(files: Iterable[ModelFile]) -> int:
    return sum(file.size for file in files if file.path.endswith(_WEIGHTS))


def _longest(config: Mapping[str, object]) -> int:
    value = config.get("max_position_embeddings")
    return value if isinstance(value, int) else 0

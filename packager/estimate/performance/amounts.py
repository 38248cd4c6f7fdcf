"""Amounts of work in the stages of a step: products, passes over tensors, operations, bytes.

Counted from the model's sizes and the texts, for no machine in particular; `effort` turns
amounts into seconds.  Counts follow what the tools do (llm-compressor 0.14.0.1); the numbers
of passes and operations are in `data/effort.toml`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from packager.core.model import ModelProfile
from packager.core.recipe import Work
from packager.core.samples import Sample, Samples
from packager.core.share import read_shipped

DATA = Path(__file__).parent / "data" / "effort.toml"

_FLOAT32_COST = 4.0  # of one operation, in those of 16 bits
LOADING = "loading the model"
LIBRARIES = "loading libraries"


@dataclass(frozen=True, slots=True, kw_only=True)
class TextAmounts:
    """Amount of text: number of texts, and of tokens in all of them."""

    count: int
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix:
    """Linear layers of one shape in one layer of the model."""

    inputs: int
    outputs: int
    count: int = 1
    role: str = ""  # `attention`, `gate`, `down`

    @property
    def weights(self) -> int:
        """Return how many weights all of them have."""
        return self.inputs * self.outputs * self.count


def texts_of(samples: Samples | None, max_tokens: int) -> TextAmounts:
    """Estimate the tokens of samples from their letters; each is cut to `max_tokens`."""
    if samples is None:
        return TextAmounts(count=0, tokens=0)
    share = counts()["quantize"]["tokens_per_byte"]
    lengths = [max(1, int(_letters(sample) * share)) for sample in samples.samples]
    return TextAmounts(
        count=len(lengths), tokens=sum(min(max_tokens, length) for length in lengths)
    )


def tokens_of_bytes(size: int, *, count: int, max_tokens: int) -> TextAmounts:
    """Estimate the tokens of files of texts, of which each is cut to `max_tokens`."""
    tokens = int(size * counts()["quantize"]["tokens_per_byte"])
    return TextAmounts(count=count, tokens=min(tokens, count * max_tokens))


def quantizing_work(
    profile: ModelProfile,
    texts: TextAmounts,
    *,
    method: str,
    weight_bytes: int,
    result_bytes: int,
    hessians: bool = False,
    iterations: int = 0,
) -> tuple[Work, ...]:
    """Return the stages of a run of `containers/tools/llmcompressor`, in order.

    `hessians` says that GPTQ rounds after smoothing; `iterations` are AutoRound's for a layer.
    """
    constants = counts()["quantize"]
    quantizing = _quantizing(
        profile, texts, method, hessians=hessians or method == "gptq", iterations=iterations
    )
    packed = _linear_weights(profile)
    passes = constants["pack_passes_fp4" if method in ("nvfp4", "mxfp4") else "pack_passes"]
    return (
        Work(stage=LIBRARIES, loads_libraries=True, on_host=True),
        Work(stage=LOADING, read_bytes=weight_bytes, on_host=True),
        quantizing,
        Work(
            stage="packing",
            elements=passes * packed,
            written_bytes=result_bytes,
            seconds=constants["finish_s"],
            on_host=True,
        ),
        Work(stage="writing", read_bytes=result_bytes, written_bytes=result_bytes, on_host=True),
    )


def matrices_of(profile: ModelProfile) -> tuple[Matrix, ...]:
    """Return the linear layers of one layer of the model, as a Llama has them.

    Architectures differ in details; sizes are scaled to the weights that the model has.
    """
    hidden, inner = profile.hidden_size, profile.intermediate_size
    heads = profile.attention_size or profile.heads * profile.head_dim
    keys = max(1, profile.kv_heads) * profile.head_dim
    attention = (
        Matrix(inputs=hidden, outputs=heads, role="attention"),
        Matrix(inputs=hidden, outputs=keys, count=2, role="attention"),
        Matrix(inputs=heads, outputs=hidden, role="output"),
    )
    if profile.experts:
        size, count = profile.expert_size or inner, profile.experts
        return (
            *attention,
            Matrix(inputs=hidden, outputs=size, count=2 * count, role="gate"),
            Matrix(inputs=size, outputs=hidden, count=count, role="down"),
        )
    return (
        *attention,
        Matrix(inputs=hidden, outputs=inner, count=2, role="gate"),
        Matrix(inputs=inner, outputs=hidden, role="down"),
    )


def comparing_work(
    profile: ModelProfile,
    texts: TextAmounts,
    *,
    read_bytes: int,
    noise_texts: int,
    prompts: int,
    answer_tokens: int,
    float32: bool,
) -> tuple[Work, ...]:
    """Return the stages of a run of `containers/tools/evaluate`, in order.

    Two models read every text, the first of them some texts twice more, and both answer
    some prompts token by token: each token reads all weights.
    """
    comparing = forward_work(profile, texts, stage="comparing", float32=float32)
    times = 2 + 2 * min(1.0, noise_texts / max(1, texts.count))
    measured = times * texts.tokens * profile.vocab_size * counts()["evaluate"]["logit_passes"]
    answers = TextAmounts(count=2 * prompts * answer_tokens, tokens=2 * prompts * answer_tokens)
    answering = forward_work(profile, answers, stage="answering", float32=float32)
    return (
        Work(stage=LIBRARIES, loads_libraries=True, on_host=True),
        Work(stage="loading the base", read_bytes=read_bytes, on_host=True),
        replace(
            comparing,
            matmul_flops=times * comparing.matmul_flops,
            float32_flops=times * comparing.float32_flops,
            elements=times * comparing.elements + measured,
            operations=times * comparing.operations,
        ),
        replace(
            answering,
            elements=answering.elements + answers.tokens * _weights_read(profile, float32),
        ),
    )


def answering_work(
    profile: ModelProfile, texts: TextAmounts, *, answer_tokens: int, read_bytes: int, float32: bool
) -> tuple[Work, ...]:
    """Return the stages of having the model answer texts: each token reads all weights.

    An answer may end before its last token: this is the most that it takes.
    """
    batch = counts()["train"]["answered_at_once"]
    tokens = texts.count * answer_tokens
    rounds = TextAmounts(count=-(-tokens // batch), tokens=tokens)
    answering = forward_work(profile, rounds, stage="answering", float32=float32)
    return (
        Work(stage=LIBRARIES, loads_libraries=True, on_host=True),
        Work(stage=LOADING, read_bytes=read_bytes, on_host=True),
        replace(
            answering, elements=answering.elements + rounds.count * _weights_read(profile, float32)
        ),
    )


def training_work(
    profile: ModelProfile,
    texts: TextAmounts,
    *,
    head_flops: float,
    tokens_seen: int,
    batch_tokens: int,
    logits: int,
    read_bytes: int,
    float32: bool,
) -> tuple[Work, ...]:
    """Return the stages of training a head: the model reads the texts once, the head many times.

    `head_flops` are of one token, forwards; backwards takes twice as much.  `logits` are those
    of one token that a loss is computed of, over all proposals.
    """
    constants = counts()["train"]
    steps = -(-tokens_seen // max(1, batch_tokens))
    return (
        Work(stage=LIBRARIES, loads_libraries=True, on_host=True),
        Work(stage=LOADING, read_bytes=read_bytes, on_host=True),
        forward_work(profile, texts, stage="reading", float32=float32),
        Work(
            stage="training",
            float32_flops=3.0 * head_flops * tokens_seen,
            elements=constants["logit_passes"] * float(logits) * tokens_seen,
            operations=constants["step_operations"] * steps,
        ),
        Work(stage="measuring", seconds=constants["measure_s"]),
    )


def forward_work(
    profile: ModelProfile,
    texts: TextAmounts,
    *,
    stage: str,
    parameters: int = 0,
    float32: bool = False,
) -> Work:
    """Return one pass of the whole model over the texts, logits of every token included."""
    constants = counts()["quantize"]
    flops = 2.0 * texts.tokens * (parameters or profile.active_parameters or profile.parameters)
    elements = texts.tokens * (
        profile.layers * _activation_elements(profile) + 2.0 * profile.vocab_size
    )
    operations = texts.count * profile.layers * constants["layer_operations"]
    return Work(
        stage=stage,
        matmul_flops=0.0 if float32 else flops,
        float32_flops=flops if float32 else 0.0,
        elements=elements,
        operations=operations,
    )


def _quantizing(
    profile: ModelProfile, texts: TextAmounts, method: str, *, hessians: bool, iterations: int = 0
) -> Work:
    constants, layers = counts()["quantize"], max(1, profile.layers)
    matrices = matrices_of(profile)
    scale = _linear_weights(profile) / max(1, layers * sum(one.weights for one in matrices))
    if not texts.count:
        return Work(
            stage="quantizing", elements=constants["rounding_passes"] * _linear_weights(profile)
        )
    # All experts are calibrated with all tokens; every layer is passed twice.
    weights = sum(one.weights for one in matrices) * scale
    head = profile.vocab_size * profile.hidden_size
    flops = 2 * 2.0 * texts.tokens * (layers * weights + head)
    elements = 2.0 * texts.tokens * layers * _activation_elements(profile)
    operations = 2.0 * texts.count * layers * constants["layer_operations"]
    float32 = 0.0
    if method == "awq":
        steps = constants["grid_steps"]
        searched = [one for one in matrices if one.role != "output"]
        down = sum(one.weights for one in matrices if one.role == "down")
        visited = constants["grid_passes"] * 20 * layers * scale
        flops += (
            steps
            * 2.0
            * texts.tokens
            * layers
            * scale
            * (sum(one.weights for one in matrices) + down)
        )
        activations = _activation_elements(profile)
        elements += constants["grid_activations"] * steps * texts.tokens * layers * activations
        elements += visited * sum(one.weights for one in searched)
        experts = max(1, profile.experts)
        operations += steps * texts.count * layers * constants["grid_operations"] * experts
    if iterations:
        # Forwards, and backwards to the inputs and to the offsets of the weights.
        batch = min(1.0, constants["round_texts"] / texts.count) * texts.tokens
        flops += iterations * 6.0 * batch * layers * weights
        elements += 3.0 * iterations * batch * layers * _activation_elements(profile)
        elements += iterations * constants["round_passes"] * layers * weights
        operations += iterations * layers * constants["round_operations"]
    if hessians:
        float32 += layers * sum(
            one.count * (2.0 * texts.tokens + constants["gptq_cube"] * one.inputs + one.outputs)
            * one.inputs**2
            for one in matrices
        )  # fmt: skip
        elements += constants["gptq_passes"] * layers * weights
    return Work(
        stage="quantizing",
        matmul_flops=flops,
        float32_flops=float32,
        elements=elements,
        operations=operations,
        units=_units(layers, head * 4.0 * texts.tokens / max(1.0, flops + _FLOAT32_COST * float32)),
    )


def _units(layers: int, head: float) -> tuple[float, ...]:
    """Return the costs of what llm-compressor's pipeline ends one by one.

    The embedding first, then each layer; the head has its `share` of it all, after the last.
    """
    return (0.0, *(1.0 for _ in range(layers)), layers * head / max(1e-9, 1 - head))


def _weights_read(profile: ModelProfile, float32: bool) -> float:
    """Return what reading all weights once is in elements, which are read and written."""
    return profile.parameters * (0.5 if float32 else 0.25)


def _letters(sample: Sample) -> int:
    texts = (
        sample.text,
        sample.prompt,
        sample.completion,
        *(one.content for one in sample.messages),
    )
    return sum(len(text) for text in texts if text)


def _linear_weights(profile: ModelProfile) -> float:
    counted = max(1, profile.layers) * sum(one.weights for one in matrices_of(profile))
    return float(profile.linear_parameters or counted)


def _activation_elements(profile: ModelProfile) -> float:
    """Return the elements that one token moves through one layer."""
    of_hidden, of_inner = counts()["quantize"]["activation_passes"]
    inner = profile.intermediate_size
    if profile.experts:
        inner = max(1, profile.experts_per_token) * (profile.expert_size or inner)
    return float(of_hidden * profile.hidden_size + of_inner * inner)


@cache
def counts() -> Mapping[str, Any]:
    """Read the shipped table."""
    return read_shipped(DATA)

"""Groups of inputs that key documents are made of.

A comment at each field states its meaning and why it belongs to the key.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from artifact_cache.credentials import holds_credential
from artifact_cache.key import (
    ConfigFields,
    Count,
    Counts,
    Digests,
    Files,
    KeyPart,
    Name,
    OrderedDigests,
    OrderedTexts,
    Paths,
    Sha256,
    Text,
    Texts,
    refuse_repeated,
)


class Graph(KeyPart):
    """Computation graph, without the values of the weights."""

    architecture: ConfigFields
    """Fields of config.json that the step reads, each as JSON; names and paths left out.

    Fine-tunes of one model agree here and share compiled graphs; a config field
    nobody has judged yet is part of it."""
    code: Sha256 | None
    """Digest of the model's own Python files; None without remote code."""
    plugins: Digests
    """Custom kernels and engine plug-ins: they replace parts of the graph."""


class Weights(KeyPart):
    """Numbers that end up inside the artifact."""

    files: Files
    """Every file that the step is given, by path; a hub name or branch can move."""
    adapters: OrderedDigests
    """Manifests of merged adapters; merging does not commute."""
    draft: Files | None
    """Files of a draft built in together with the model."""


class DynamicDimension(KeyPart):
    """A range one compiled graph accepts. Kernels are tuned for `optimum`."""

    name: Name
    """The dimension, in the compiler's own words."""
    minimum: Count
    """Smallest size; below it the engine refuses."""
    optimum: Count
    """Size the kernels are chosen for."""
    maximum: Count
    """Largest size; above it the engine refuses."""


def _by_name(dimensions: tuple[DynamicDimension, ...]) -> tuple[DynamicDimension, ...]:
    refuse_repeated(dimension.name for dimension in dimensions)
    return tuple(sorted(dimensions, key=lambda dimension: dimension.name))


class Shape(KeyPart):
    """Sizes the graph is compiled for; outside them the engine pads, recompiles or refuses."""

    max_batch: Count
    """Sequences served together."""
    context_batch: Count | None
    """Sequences per prefill, where it is compiled apart."""
    token_batch: Count | None
    """Sequences per decode step, where it is compiled apart."""
    max_input_tokens: Count
    """Longest prompt."""
    max_total_tokens: Count
    """Longest prompt and answer together; sizes the KV cache."""
    max_batched_tokens: Count | None
    """Tokens of all sequences in one step; vLLM compiles for this range."""
    context_buckets: Counts
    """Prefill lengths with a graph of their own."""
    token_buckets: Counts
    """Decode lengths with a graph of their own."""
    prefill_chunk_tokens: Count | None
    """Length of a piece of a chunked prefill."""
    beam_width: Count
    """1 without beam search; it multiplies the batch inside the graph."""
    block_tokens: Count | None
    """Tokens per KV block; the attention kernels are compiled for it."""
    paged: bool
    """Whether the KV cache is addressed through a block table."""
    graph_sizes: Counts
    """Batch sizes compiled and captured one by one."""
    dynamic: Annotated[tuple[DynamicDimension, ...], AfterValidator(_by_name)]
    """Ranges of dimensions left open at compile time."""


class Quantization(KeyPart):
    """Encoding of stored weights; it selects kernels and layouts."""

    algorithm: Text
    """`gptq`, `awq`, `fp8`: layouts differ even at equal width."""
    bits: Count
    """Width of one weight."""
    group_size: Count | None
    """Weights per scale; None is one scale per channel or tensor."""
    symmetric: bool
    """Whether zero is in the middle of the range."""
    zero_point: bool
    """Whether zero points are stored."""
    excluded_modules: Texts
    """Modules left as they are: they need other kernels."""


class ActivationQuantization(KeyPart):
    """Rounding of the inputs of quantized layers while serving."""

    dtype: Text
    """Element type, `fp8_e4m3` or `int8`."""
    granularity: Text
    """`tensor`, `token` or `group`: how many values share a scale."""
    dynamic: bool
    """Scales from the live values, or from calibration."""


class Precision(KeyPart):
    """Element types, everywhere one is chosen."""

    dtype: Text
    """What the arithmetic is done in."""
    weights: Quantization | None
    """None when weights are stored in a plain float type."""
    activations: ActivationQuantization | None
    """None when activations stay in `dtype`."""
    kv_dtype: Text
    """Element type of the KV cache."""
    auto_cast: Text | None
    """Operations the compiler may lower: Neuron `none`, `matmult`, `all`."""
    auto_cast_dtype: Text | None
    """Type it lowers them to."""
    logits_dtype: Text
    """Element type of the last layer's output."""


class Calibration(KeyPart):
    """The samples scales were measured on; others give other weights."""

    dataset: Sha256
    """Digest of the texts as used: a data set's name can move."""
    samples: Count
    """How many were taken."""
    sequence_tokens: Count
    """Length each was cut or padded to."""
    seed: Count
    """Which ones were taken, and in which order."""


class Parallelism(KeyPart):
    """Split of the work into ranks. Each rank has its own graph and shards."""

    tp: Count
    """Tensor-parallel degree: the shape of every sharded matrix."""
    pp: Count
    """Pipeline stages: which layers a rank holds."""
    ep: Count
    """Expert-parallel degree."""
    attention_dp: Count
    """Replicas of attention inside the tensor-parallel group."""
    cp: Count
    """Context-parallel degree."""
    world: Count
    """All ranks; collectives are compiled for the number."""
    local_ranks: Count
    """Ranks per host: decides which collectives stay inside it."""
    start_rank: Count
    """First rank of this host."""
    ranks: Counts
    """Ranks whose files are in the artifact."""
    sharding: Text
    """How KV heads are spread when they do not divide evenly: `replicate`, `convert`."""


class Cpu(KeyPart):
    """Processor features that CPU kernels are compiled and tuned for."""

    isa: Texts
    """Extensions used, `avx512_bf16`: a missing one is an illegal instruction."""
    threads: Count
    """Worker threads; they decide how loops are cut."""


class Target(KeyPart):
    """Target that runs the artifact: the architecture, never an instance's name or size."""

    backend: Literal["cuda", "rocm", "neuron", "cpu"]
    """Driver family."""
    arch: Text
    """`sm_90`, `trn1` (Inf2 too: both run the same code), `x86_64`."""
    device: Text | None
    """Exact device name where kernels are tuned by timing; None where they are not."""
    logical_core_size: Count | None
    """Physical NeuronCores that act as one; None elsewhere."""
    cpu: Cpu | None
    """Host features, for artifacts with CPU code in them."""
    os: Text
    """`linux`: artifacts hold shared libraries."""
    machine: Text
    """Host architecture of those libraries."""
    libc: Text
    """C library and version they link to, `glibc-2.35`."""


class Package(KeyPart):
    """One exact tool. Artifacts do not survive an upgrade."""

    name: Name
    """As the package index or vendor spells it."""
    version: Text
    """Exact, with the local part: `2.11.0+cu130` is not `2.11.0+cpu`."""
    digest: Sha256 | None
    """Of the wheel, where it is known: a version can be rebuilt."""


def _by_package(packages: tuple[Package, ...]) -> tuple[Package, ...]:
    refuse_repeated(package.name for package in packages)
    return tuple(sorted(packages, key=lambda package: package.name))


class Toolchain(KeyPart):
    """The programs that make the artifact, and those it is made for."""

    packages: Annotated[tuple[Package, ...], Field(min_length=1), AfterValidator(_by_package)]
    """Compiler, engine, torch, Triton, CUDA: every one whose version reaches the output."""
    environment: dict[Text, Text]
    """Every package beside the tools, by name, and `python` without its bug fixes.

    Empty where all of them are those of `image`."""
    image: Sha256 | None
    """Image that the step runs in, or that its packages are installed into."""
    worker: Sha256
    """Digest of our own step: its source decides what the tools are told."""


class Invocation(KeyPart):
    """Invocation of the tools. The step's environment is made from this alone."""

    compiler_args: OrderedTexts
    """Command line in order: a later flag can override an earlier one."""
    engine_args: dict[Name, Text]
    """Engine settings that change the graph."""
    env: dict[Name, Text]
    """Every variable the step can see, `NEURON_CC_FLAGS` and `NEURON_LOGICAL_NC_CONFIG` too.

    They change results and appear in no config (optimum-neuron#457, vllm#14953)."""

    @model_validator(mode="after")
    def _refuse_credentials(self) -> Self:
        words = (word.lstrip("-").partition("=") for word in self.compiler_args)
        named = [(name, value) for name, _, value in words if name]
        for name, value in (*named, *self.engine_args.items(), *self.env.items()):
            if holds_credential(name, value):
                raise ValueError(f"{name[:60]!r} holds a credential, and keys are shared as text")
        return self


class Speculation(KeyPart):
    """Settings of speculative decoding; they widen the graph's decode step."""

    method: Text
    """`eagle`, `medusa`, `draft_model`, `ngram`."""
    tokens: Count
    """Proposed per step. vLLM left it out and served wrong shapes (vllm#53366)."""
    draft_config: Sha256 | None
    """Architecture digest of the draft; None when there is none."""
    heads: Count | None
    """Medusa heads."""
    layers: Count | None
    """Layers of one head."""
    tree: Paths
    """Candidate tree, each node as the path of choices to it."""


class Sampling(KeyPart):
    """Sampling that was compiled into the graph."""

    on_device: bool
    """Whether the graph ends in tokens or in logits."""
    max_top_k: Count | None
    """Largest top-k it can do."""


class LoraEnvelope(KeyPart):
    """Room for adapters that arrive while serving."""

    max_loras: Count
    """Adapters in one batch."""
    max_rank: Count
    """Largest rank; it sizes the buffers."""
    target_modules: Texts
    """Layers that got an adapter path."""

"""Key documents: every input that decides whether an artifact may be used.

Changing a field, or what it means, bumps `schema`; changing the hash bumps
`KEY_PREFIX`; both need a new frozen digest in the tests.  A false miss costs
hours; a false hit serves a model built for other inputs, and nothing
downstream can notice.

No field but `schema` and `kind` has a default: an input that was forgotten must
be an error, never an equal key.  "Does not apply" is stated as None or empty.

Files and configuration fields are listed one by one, so that a miss names the
file and the field.  What stays out, because it moves and decides nothing: model
names, revisions, paths on this machine, host and served names, ports, instance
size, region, times, log settings, the weights of artifacts that do not embed
them, and every file that the step is not given: licences and model cards
always, tokenizer and chat template where nothing reads a text.  Credentials
stay out because documents are shared in plain text.
"""

from __future__ import annotations

import hashlib
import json
import unicodedata
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal, Self, cast

import rfc8785
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    model_validator,
)

from artifact_cache.credentials import holds_credential

KEY_PREFIX = b"packager-key-v1\n"  # two schemes can then never give one key
MANIFEST_PREFIX = b"packager-manifest-v1\n"

KIND_PATTERN = r"^[a-z][a-z0-9-]{0,39}$"  # a directory's name, on every file system
MAX_FILES = 2000  # named one by one; an entry has room for them
LARGEST_INTEGER = 2**53 - 1  # RFC 8785 numbers are IEEE doubles; past this they collide


def _nfc(text: str) -> str:
    return unicodedata.normalize("NFC", text)


def _sorted_set(values: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(sorted(set(values)))


Text = Annotated[
    str, StringConstraints(min_length=1, max_length=65536), AfterValidator(_nfc)
]  # NFC: one name typed on two systems is one name
Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}$")]
Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Count = Annotated[int, Field(ge=0, le=LARGEST_INTEGER)]
Texts = Annotated[tuple[Text, ...], AfterValidator(_sorted_set)]  # a set: order means nothing
Counts = Annotated[tuple[Count, ...], AfterValidator(_sorted_set)]
Digests = Annotated[tuple[Sha256, ...], AfterValidator(_sorted_set)]
Paths = Annotated[tuple[tuple[Count, ...], ...], AfterValidator(_sorted_set)]
Files = Annotated[dict[Text, Sha256], Field(max_length=MAX_FILES)]  # by path
ConfigFields = Annotated[dict[Text, Text], Field(min_length=1, max_length=MAX_FILES)]  # as JSON
OrderedTexts = tuple[Text, ...]  # order means something to whoever reads them
OrderedDigests = tuple[Sha256, ...]


class KeyPart(BaseModel):
    """A group of inputs: strict, frozen, nothing unknown, nothing coerced."""

    model_config = ConfigDict(
        defer_build=True,
        strict=True,
        frozen=True,
        extra="forbid",
        validate_by_name=True,
        validate_by_alias=True,
    )


class Graph(KeyPart):
    """What is computed, apart from the numbers in the weights."""

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
    _refuse_repeated(dimension.name for dimension in dimensions)
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
    """How stored weights stand for real ones; it selects kernels and layouts."""

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
    """How inputs of quantized layers are rounded while serving."""

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
    """How the work is cut into ranks. Each rank has a graph and shards of its own."""

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
    """What CPU kernels are compiled and tuned for."""

    isa: Texts
    """Extensions used, `avx512_bf16`: a missing one is an illegal instruction."""
    threads: Count
    """Worker threads; they decide how loops are cut."""


class Target(KeyPart):
    """What runs the artifact: the architecture, never the name or size of an instance."""

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
    _refuse_repeated(package.name for package in packages)
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
    """What the tools are told. The step runs in an environment made from this and nothing else."""

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
        told = [(name, value) for name, _, value in words if name]
        for name, value in (*told, *self.engine_args.items(), *self.env.items()):
            if holds_credential(name, value):
                raise ValueError(f"{name[:60]!r} holds a credential, and keys are shared as text")
        return self


class Speculation(KeyPart):
    """How tokens are proposed and checked; it widens the graph's decode step."""

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


class KeyDocument(KeyPart):
    """All inputs of one artifact. `kind` names its form and its directory in a store."""

    schema_version: Literal[2] = Field(default=2, alias="schema")
    """Meaning of the fields; a change of meaning is a new number."""
    kind: Annotated[str, StringConstraints(pattern=KIND_PATTERN)]
    """Which files the artifact consists of."""


class CompiledKey(KeyDocument):
    """Inputs every ahead-of-time compiler shares."""

    graph: Graph
    """What is compiled."""
    shape: Shape
    """Sizes it is compiled for."""
    precision: Precision
    """Element types it computes in."""
    parallelism: Parallelism
    """How it is cut."""
    target: Target
    """What it is compiled for."""
    toolchain: Toolchain
    """What compiles it."""
    invocation: Invocation
    """What the compiler is told."""
    speculation: Speculation | None
    """None without speculative decoding."""
    sampling: Sampling
    """What is sampled inside the graph."""
    lora: LoraEnvelope | None
    """None when no adapter can be loaded."""


class VllmCompileKey(CompiledKey):
    """A vLLM compile cache: no weights inside, but opaque and sensitive to where it lies."""

    kind: Literal["vllm-compile"] = "vllm-compile"
    """The trees under `VLLM_CACHE_ROOT`."""
    model_path_in_image: Text
    """vLLM hashes the path it serves from; in the image, not on this machine."""
    site_packages_in_image: Text
    """It hashes traced source files by path, too."""


class NeuronKey(CompiledKey):
    """Graphs compiled by neuronx-cc."""

    kind: Literal["neuron"] = "neuron"
    """NEFF files with what the loader needs beside them."""
    layout: Literal["neff-cache", "nxdi-model"]
    """A compiler cache, or a traced model that loads without the compiler."""
    weights: Weights | None
    """Only for graphs with inlined weights; None lets fine-tunes share."""


class TensorRtLlmEngineKey(CompiledKey):
    """A TensorRT-LLM engine: one plan per rank."""

    kind: Literal["tensorrt-llm-engine"] = "tensorrt-llm-engine"
    """`rank*.engine` and its `config.json`."""
    weights: Weights | None
    """Inside the plan, unless it was built stripped: then None."""


class QuantizedCheckpointKey(KeyDocument):
    """A checkpoint in another precision. Serving shape and target do not touch it."""

    kind: Literal["quantized-checkpoint"] = "quantized-checkpoint"
    """Safetensors with the config that describes them."""
    graph: Graph
    """Which layers there are to quantize."""
    weights: Weights
    """What is quantized."""
    precision: Precision
    """What it becomes."""
    calibration: Calibration | None
    """None for methods that look at the weights alone."""
    sharding: Parallelism | None
    """None for the usual checkpoint that any TP degree can load."""
    toolchain: Toolchain
    """What quantizes it."""
    invocation: Invocation
    """What the quantizer is told: parameters of the method are here, as text."""
    computed_on: Text | None
    """Class of device, `cpu` or `sm_90`, where the method takes another way on each.

    None where devices merely round differently: each result is then as valid as
    the other, as with two runs on one device."""


class DraftHeadKey(KeyDocument):
    """A draft brought into the layout an engine loads, or trained for one model."""

    kind: Literal["draft-head"] = "draft-head"
    """Safetensors with the config that describes them."""
    graph: Graph
    """Architecture of the model whose tokens it proposes."""
    weights: Weights
    """`files`: that model when training, the source head when only relaid out."""
    precision: Precision
    """Element types of the draft."""
    speculation: Speculation
    """What kind of draft, and how large."""
    calibration: Calibration | None
    """The training texts; None when nothing is trained."""
    toolchain: Toolchain
    """What makes it."""
    invocation: Invocation
    """What it is told: learning rate and epochs are here, as text."""


class QualityReportKey(KeyDocument):
    """Figures that say how far a checkpoint is from the one it was made of."""

    kind: Literal["quality-report"] = "quality-report"
    """One JSON document."""
    weights: Weights
    """The checkpoint that is the measure, with its configuration and tokenizer."""
    candidate: Files
    """The checkpoint that is measured, likewise."""
    data: Calibration
    """The texts both are told."""
    toolchain: Toolchain
    """What computes."""
    invocation: Invocation
    """What it is told, as text."""


class ModelAnswersKey(KeyDocument):
    """Texts in which a model's own answers stand: what its draft heads learn from."""

    kind: Literal["model-answers"] = "model-answers"
    """JSON lines."""
    weights: Weights
    """Whose answers, with its configuration and tokenizer."""
    data: Calibration
    """The texts that it answers."""
    toolchain: Toolchain
    """What runs the model."""
    invocation: Invocation
    """What it is told: temperature and the length of answers are here, as text."""


class StepInputKey(KeyDocument):
    """A file that a step needs on another machine, by what it holds."""

    kind: Literal["step-input"] = "step-input"
    """One file, `content`."""
    sha256: Sha256
    """Of its bytes."""


KINDS: Mapping[str, type[KeyDocument]] = {
    "vllm-compile": VllmCompileKey,
    "neuron": NeuronKey,
    "tensorrt-llm-engine": TensorRtLlmEngineKey,
    "quantized-checkpoint": QuantizedCheckpointKey,
    "draft-head": DraftHeadKey,
    "quality-report": QualityReportKey,
    "model-answers": ModelAnswersKey,
    "step-input": StepInputKey,
}


def key_of(document: KeyDocument) -> str:
    """Give the document's address: 64 hex digits, equal only for equal inputs."""
    return key_of_plain(plain(document))


def plain(document: KeyDocument) -> dict[str, Any]:
    """Give the document as the JSON object that is hashed and stored."""
    return document.model_dump(mode="json", by_alias=True)


def key_of_plain(document: Mapping[str, Any]) -> str:
    """Give the key of a document that is already plain JSON.

    Takes kinds and schemas this version has never seen, so that an entry can
    always be checked against its own key.  Raises ValueError for what two
    systems could write differently.
    """
    _refuse_ambiguous(document)
    return hashlib.sha256(KEY_PREFIX + rfc8785.dumps(cast("Any", document))).hexdigest()


def parse_document(document: Mapping[str, Any]) -> KeyDocument:
    """Give the typed form of a plain document of a known kind.

    Raises pydantic's ValidationError, or ValueError for an unknown kind.
    """
    kind = document.get("kind")
    model = KINDS.get(kind) if isinstance(kind, str) else None
    if model is None:
        raise ValueError(f"no key document of kind {kind!r}; there are {', '.join(KINDS)}")
    # Through JSON text: strict mode takes a list for a tuple only there.
    return model.model_validate_json(json.dumps(document))


def manifest_digest(files: Iterable[tuple[str, int, str]]) -> str:
    """Give one digest for a set of files, each as path, size and sha256.

    The order does not matter; a file that appears, vanishes or is renamed does.
    """
    rows = sorted([_nfc(path), size, sha256] for path, size, sha256 in files)
    _refuse_repeated(str(path) for path, _, _ in rows)
    return hashlib.sha256(MANIFEST_PREFIX + rfc8785.dumps(cast("Any", rows))).hexdigest()


def _refuse_ambiguous(value: object) -> None:
    match value:
        case float():
            raise ValueError("a key document holds no floats: state them as text")
        case str() if not unicodedata.is_normalized("NFC", value):
            raise ValueError(f"text in a key document is not NFC: {value!r}")
        case Mapping():
            for name, inner in value.items():
                _refuse_ambiguous(name)
                _refuse_ambiguous(inner)
        case list() | tuple():
            for inner in value:
                _refuse_ambiguous(inner)


def _refuse_repeated(names: Iterable[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ValueError(f"{name!r} stands twice")
        seen.add(name)

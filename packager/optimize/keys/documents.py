"""The cache key of each kind of artifact: every input that decides whether it may be used.

Changing a field, or what it means, bumps `schema` and needs a new frozen digest
in the tests.  A false miss costs hours; a false hit serves a model built for
other inputs, and nothing downstream can notice.

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

import json
from collections.abc import Mapping
from typing import Any, Literal

from artifact_cache.key import Count, Files, KeyDocument, Sha256, Text
from packager.optimize.keys.parts import (
    Calibration,
    Graph,
    Invocation,
    LoraEnvelope,
    Parallelism,
    Precision,
    Sampling,
    Shape,
    Speculation,
    Target,
    Toolchain,
    Weights,
)


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


class CheckpointKey(KeyDocument):
    """A checkpoint in another precision. Serving shape and target do not touch it."""

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


class QuantizedCheckpointKey(CheckpointKey):
    """The checkpoint's files."""

    kind: Literal["quantized-checkpoint"] = "quantized-checkpoint"
    """Safetensors with the config that describes them."""


class StreamedLayersKey(CheckpointKey):
    """Layers of the checkpoint that was quantized while it was read, by digest alone."""

    kind: Literal["streamed-layers"] = "streamed-layers"
    """`layers.json`."""
    layers: Text
    """How files become layers: the formats, with their versions."""
    number: Count
    """0, and more where bases have the directories of layers with attributes of their own."""


class ShardedCheckpointKey(KeyDocument):
    """A checkpoint as each rank of one engine holds it. The serving shape does not touch it."""

    kind: Literal["sharded-checkpoint"] = "sharded-checkpoint"
    """`model-rank-*-part-*.safetensors`."""
    graph: Graph
    """Which parameters the engine makes."""
    weights: Weights
    """What is split; of a checkpoint that a step makes, that step's own key."""
    precision: Precision
    """What parameters are stored in."""
    parallelism: Parallelism
    """How many ranks share them."""
    target: Target
    """Kernels decide how some formats of quantized weights are laid out."""
    toolchain: Toolchain
    """Names and shapes of parameters are the engine's own."""
    invocation: Invocation
    """What the engine is told, and how large a part may be."""


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
    "streamed-layers": StreamedLayersKey,
    "sharded-checkpoint": ShardedCheckpointKey,
    "draft-head": DraftHeadKey,
    "quality-report": QualityReportKey,
    "model-answers": ModelAnswersKey,
    "step-input": StepInputKey,
}


def parse_document(document: Mapping[str, Any]) -> KeyDocument:
    """Return the typed form of a plain document of a known kind.

    Raises pydantic's ValidationError, or ValueError for an unknown kind.
    """
    kind = document.get("kind")
    model = KINDS.get(kind) if isinstance(kind, str) else None
    if model is None:
        raise ValueError(f"no key document of kind {kind!r}; there are {', '.join(KINDS)}")
    # Through JSON text: strict mode takes a list for a tuple only there.
    return model.model_validate_json(json.dumps(document))

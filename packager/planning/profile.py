"""The numbers of a model, from config.json and the headers of its weights.

Both come from strangers.  A wrong value becomes a finding, never an exception
and never a guess: a plan that is built on a guess fails an hour later.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

from packager.core.findings import Finding
from packager.core.model import ModelFiles, ModelProfile, TensorInfo
from packager.planning.quantized import count_parameters, read_quantization

# Decoder-only transformers whose config.json states every number that is read here.
# Read in the modeling code of transformers 5.17 and the model registry of vLLM 0.32.
KNOWN_ARCHITECTURES = frozenset(
    {
        "LlamaForCausalLM",
        "MistralForCausalLM",
        "Mistral3ForConditionalGeneration",
        "MixtralForCausalLM",
        "Qwen2ForCausalLM",
        "Qwen3ForCausalLM",
        "GemmaForCausalLM",
        "Gemma2ForCausalLM",
        "Gemma3ForCausalLM",
        "Gemma3ForConditionalGeneration",
        "Phi3ForCausalLM",
    }
)

NEEDED = (
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "vocab_size",
    "max_position_embeddings",
)
OPTIONAL = ("num_key_value_heads", "head_dim")

LARGEST = 2**31 - 1  # what the engines keep these numbers in

DTYPES = {"BF16": "bf16", "F16": "fp16", "F32": "fp32"}
CONFIG_DTYPES = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}

KV_ELEMENT_BYTES = 2  # the KV cache is kept in the 16-bit type that the engine computes with

PUBLISHED = "use the config.json that was published with these weights"


def make_profile(model: ModelFiles) -> tuple[ModelProfile, tuple[Finding, ...]]:
    """Read a model's numbers. With an error among the findings, the profile is not to be used."""
    config = text_config(model.config)
    numbers, findings = _read_numbers(config)
    architecture, found = _architecture(model.config)
    findings += found
    quantization, found = read_quantization(model.config)
    findings += found
    dtype, found = _dtype(model.tensors, config)
    findings += found
    findings += _disagreements(numbers, model.tensors)

    heads = numbers.get("num_attention_heads", 0)
    kv_heads = numbers.get("num_key_value_heads", heads)
    head_dim = numbers.get("head_dim", numbers.get("hidden_size", 0) // heads if heads else 0)
    layers = numbers.get("num_hidden_layers", 0)
    profile = ModelProfile(
        architecture=architecture,
        parameters=count_parameters(model.tensors, quantization),
        weight_bytes=model.weight_bytes,
        dtype=dtype,
        hidden_size=numbers.get("hidden_size", 0),
        intermediate_size=numbers.get("intermediate_size", 0),
        layers=layers,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        vocab_size=numbers.get("vocab_size", 0),
        max_positions=numbers.get("max_position_embeddings", 0),
        kv_bytes_per_token=2 * layers * kv_heads * head_dim * KV_ELEMENT_BYTES,
        quantization=quantization.method,
        weight_format=quantization.weight_format,
        group_size=quantization.group_size,
    )
    return profile, tuple(findings)


def text_config(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the part that describes the language model: multimodal configs nest it."""
    nested = config.get("text_config")
    return {**config, **nested} if isinstance(nested, Mapping) else config


def _read_numbers(config: Mapping[str, Any]) -> tuple[dict[str, int], list[Finding]]:
    numbers: dict[str, int] = {}
    findings: list[Finding] = []
    for field in (*NEEDED, *OPTIONAL):
        value = config.get(field)
        if value is None:
            if field in NEEDED:
                message = f"config.json does not state {field}"
                findings.append(Finding("error", "config-missing", message, PUBLISHED))
        elif type(value) is not int or not 0 < value <= LARGEST:
            message = f"config.json: {field} is {_shown(value)}, not a positive whole number"
            findings.append(Finding("error", "config-value", message, PUBLISHED))
        else:
            numbers[field] = value
    if not findings:
        findings += _contradictions(numbers)
    return numbers, findings


def _contradictions(numbers: Mapping[str, int]) -> list[Finding]:
    heads, hidden_size = numbers["num_attention_heads"], numbers["hidden_size"]
    kv_heads = numbers.get("num_key_value_heads", heads)
    findings = []
    if "head_dim" not in numbers and hidden_size % heads:
        message = f"config.json: hidden_size {hidden_size} is not a multiple of {heads} heads"
        findings.append(Finding("error", "config-value", message, PUBLISHED))
    if heads % kv_heads:
        message = f"config.json: {heads} attention heads cannot share {kv_heads} key-value heads"
        findings.append(Finding("error", "config-value", message, PUBLISHED))
    return findings


def _architecture(config: Mapping[str, Any]) -> tuple[str, list[Finding]]:
    names = config.get("architectures")
    if not isinstance(names, list) or not names or not isinstance(names[0], str) or not names[0]:
        message = "config.json names no architecture, so no engine can load the model"
        return "", [Finding("error", "architecture-missing", message, PUBLISHED)]
    if names[0] in KNOWN_ARCHITECTURES:
        return names[0], []
    message = f"architecture {_shown(names[0])} is not known here; memory is reckoned as for Llama"
    hint = "check that the engine serves it, and leave more memory free than the plan says"
    return names[0], [Finding("warning", "architecture-unknown", message, hint)]


def _dtype(tensors: tuple[TensorInfo, ...], config: Mapping[str, Any]) -> tuple[str, list[Finding]]:
    """Find the type that most unquantized bytes have, else the one config.json names."""
    if not tensors:
        hint = "package the directory that holds the .safetensors files"
        return "", [Finding("error", "no-weights", "the model has no weights", hint)]
    sizes: Counter[str] = Counter()
    for tensor in tensors:
        if tensor.dtype in DTYPES:
            sizes[DTYPES[tensor.dtype]] += tensor.size
    if sizes:
        return max(sorted(sizes), key=lambda dtype: sizes[dtype]), []
    named = config.get("dtype", config.get("torch_dtype"))
    if isinstance(named, str) and named in CONFIG_DTYPES:
        return CONFIG_DTYPES[named], []
    message = f"the element type of the weights is not supported: {_shown(tensors[0].dtype)}"
    hint = "save the weights as bfloat16, float16 or float32"
    return "", [Finding("error", "dtype-unknown", message, hint)]


def _disagreements(numbers: Mapping[str, int], tensors: tuple[TensorInfo, ...]) -> list[Finding]:
    """Compare config.json with the weights: a mixed-up pair loads for minutes, then fails."""
    findings = []
    embedding = next((t for t in tensors if t.name.endswith("embed_tokens.weight")), None)
    if embedding and "hidden_size" in numbers and embedding.shape[1:] != (numbers["hidden_size"],):
        message = (
            f"config.json says hidden_size {numbers['hidden_size']}, "
            f"but the embedding's shape is {list(embedding.shape)}"
        )
        findings.append(Finding("error", "config-mismatch", message, PUBLISHED))
    matches = (re.search(r"(?:^|\.)layers\.(\d+)\.", tensor.name, re.ASCII) for tensor in tensors)
    present = {match[1] for match in matches if match}
    stated = numbers.get("num_hidden_layers", 0)
    if present and len(present) < stated:
        message = f"config.json says {stated} layers, but the weights have {len(present)}"
        findings.append(Finding("error", "config-mismatch", message, PUBLISHED))
    return findings


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."

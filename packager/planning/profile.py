"""The numbers of a model, from config.json and the headers of its weights.

Both come from strangers.  A wrong value becomes a finding, never an exception
and never a guess: a plan that is built on a guess fails an hour later.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal

from packager.core.findings import Finding
from packager.core.model import ModelFiles, ModelProfile, TensorInfo
from packager.planning.architectures import Architecture, find_architecture, is_native
from packager.planning.kinds import check_kind
from packager.planning.mtp import MtpHead, read_mtp
from packager.planning.quantized import (
    Quantized,
    holds_no_weights,
    parameters_in,
    read_quantization,
)

NEEDED = ("hidden_size", "intermediate_size", "layers", "heads", "vocab_size", "max_positions")
OPTIONAL = ("kv_heads", "head_dim")

LONGEST_NAME = 128  # of a class that an engine could have
LARGEST = 2**31 - 1  # what the engines keep these numbers in

DTYPES = {"BF16": "bf16", "F16": "fp16", "F32": "fp32"}
CONFIG_DTYPES = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}

KV_ELEMENT_BYTES = 2  # the KV cache is kept in the 16-bit type that the engine computes with
STATE_ELEMENT_BYTES = 4  # transformers keeps the state of linear attention in 32 bits

PUBLISHED = "use the config.json that was published with these weights"

LAYER = re.compile(r"(?:^|\.)(?:layers|h|blocks)\.(\d+)\.", re.ASCII)
OTHER_PARTS = re.compile(r"(?:^|\.)(?:visual|vision|audio|multi_modal|mtp)", re.ASCII)
# Routers decide by small differences: every quantizer leaves them whole.
NOT_PACKED = (
    ".gate.weight",
    ".router.weight",
    ".router.layer.weight",
    "shared_expert_gate.weight",
    "norm.weight",
)
EXPERTS = (".experts.", ".input_linear.", ".output_linear.")  # the latter: Granite's, in one


PackedSizes = Mapping[tuple[int, ...], tuple[str, int]]


@dataclass(slots=True)
class _Sums:
    """What the headers add up to."""

    parameters: int | None = 0  # None: packed words do not tell how many they hold
    expert_parameters: int = 0
    linear_parameters: int = 0
    outside_bytes: int = 0
    tower_bytes: int = 0
    expert_bytes: int = 0
    unserved_bytes: int = 0
    layers: int = 0  # distinct ones
    packed: dict[tuple[int, ...], tuple[str, int]] = field(default_factory=dict)  # `packed_sizes`


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cache:
    """What attention keeps of a sequence."""

    kv_bytes_per_token: int
    cached_layers: int
    attention: Literal["heads", "mla"] = "heads"
    attention_size: int = 0
    window_layers: int = 0
    window_tokens: int = 0
    state_bytes: int = 0
    split_counts: tuple[int, ...] = ()


class _Config:
    """Reads numbers of config.json and collects what is wrong with them."""

    def __init__(self, config: Mapping[str, Any], defaults: Mapping[str, int]) -> None:
        self._config = config
        self._defaults = defaults
        self.findings: list[Finding] = []

    def number(self, *keys: str, needed: bool = True) -> int:
        """Give the first that is stated; 0 for what is not."""
        key = next((key for key in keys if self._config.get(key) is not None), "")
        if not key:
            value = next((self._defaults[key] for key in keys if key in self._defaults), 0)
            if needed and not value:
                self._error("config-missing", f"config.json does not state {keys[0]}")
            return value
        stated = self._config[key]
        if type(stated) is not int or not 0 < stated <= LARGEST:
            what = f"config.json: {key} is {_shown(stated)}, not a positive whole number"
            self._error("config-value", what)
            return 0
        return stated

    def switch(self, key: str, *, default: bool) -> bool:
        stated = self._config.get(key)
        return stated if isinstance(stated, bool) else default

    def layers_of_type(self, kind: str) -> int | None:
        """Count the layers that `layer_types` names so; None when it is not there."""
        types = self._config.get("layer_types")
        return types.count(kind) if isinstance(types, list) else None

    def _error(self, code: str, message: str) -> None:
        self.findings.append(Finding("error", code, message, PUBLISHED))


@dataclass(frozen=True, slots=True, eq=False)
class SameModel:
    """A model compared by identity: nothing in it changes, and hashing it would cost a reading."""

    model: ModelFiles

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SameModel) and other.model is self.model

    def __hash__(self) -> int:
        return id(self.model)


def make_profile(model: ModelFiles) -> tuple[ModelProfile, tuple[Finding, ...]]:
    """Read a model's numbers. With an error among the findings, the profile is not to be used.

    Ranking and presets plan one model many times: it is read once.
    """
    return _make_profile(SameModel(model))[:2]


def packed_sizes(model: ModelFiles) -> PackedSizes:
    """Return the sizes of the layers' matrices that quantizers pack, stored one by one.

    Maps outputs and inputs of a matrix to the first that has them, and how many have.
    """
    return _make_profile(SameModel(model))[2]


@lru_cache(maxsize=2)  # a model and its draft
def _make_profile(same: SameModel) -> tuple[ModelProfile, tuple[Finding, ...], PackedSizes]:
    model = same.model
    name, name_findings = _architecture(model.config)
    if (refused := check_kind(name, model)) is not None:
        return _no_profile(name, model), (refused,), {}
    row = find_architecture(name)
    text = text_config(model.config)
    config = _Config(text, row.defaults)
    numbers = _read_numbers(config, row)
    quantization, findings = read_quantization(model.config)
    dtype, dtype_findings = _dtype(model.tensors, text)
    findings += dtype_findings

    cache = _read_cache(config, row, numbers)
    experts = _read_experts(config, row)
    head = frozenset(tensor.name for tensor in _read_head(same).tensors)
    sums = _add_up(model.tensors, head, numbers["layers"], quantization)
    findings += _disagreements(numbers, model.tensors, sums)

    parameters = sums.parameters or 0
    profile = ModelProfile(
        architecture=name,
        parameters=parameters,
        weight_bytes=model.weight_bytes,
        dtype=dtype,
        hidden_size=numbers["hidden_size"],
        intermediate_size=numbers["intermediate_size"],
        layers=numbers["layers"],
        heads=numbers["heads"],
        kv_heads=numbers["kv_heads"],
        head_dim=numbers["head_dim"],
        vocab_size=numbers["vocab_size"],
        max_positions=numbers["max_positions"],
        kv_bytes_per_token=cache.kv_bytes_per_token,
        quantization=quantization.method,
        weight_format=quantization.weight_format,
        group_size=quantization.group_size,
        quantization_options=quantization.options,
        known=is_native(name),
        attention=cache.attention,
        attention_size=cache.attention_size,
        window_tokens=cache.window_tokens,
        window_layers=cache.window_layers,
        cached_layers=cache.cached_layers,
        state_bytes=cache.state_bytes,
        split_counts=cache.split_counts,
        experts=experts[0],
        experts_per_token=experts[1],
        expert_size=experts[2],
        active_parameters=_active(parameters, sums.expert_parameters, experts),
        linear_parameters=0 if quantization.method else sums.linear_parameters,
        outside_bytes=sums.outside_bytes,
        tower_bytes=sums.tower_bytes,
        expert_bytes=sums.expert_bytes,
        unserved_bytes=sums.unserved_bytes,
        model_type=_model_type(model.config),
    )
    return profile, (*config.findings, *name_findings, *findings), sums.packed


def _no_profile(name: str, model: ModelFiles) -> ModelProfile:
    """Stand for a model whose numbers would be about nothing."""
    return ModelProfile(
        architecture=name,
        parameters=0,
        weight_bytes=model.weight_bytes,
        dtype="",
        hidden_size=0,
        intermediate_size=0,
        layers=0,
        heads=0,
        kv_heads=0,
        head_dim=0,
        vocab_size=0,
        max_positions=0,
        kv_bytes_per_token=0,
        known=False,
    )


def read_head(model: ModelFiles) -> MtpHead:
    """Read what a checkpoint declares and has of an MTP head, once for each model."""
    return _read_head(SameModel(model))


@lru_cache(maxsize=2)
def _read_head(same: SameModel) -> MtpHead:
    return read_mtp(same.model.config, same.model.tensors)


def text_config(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the part that describes the language model: multimodal configs nest it."""
    nested = config.get("text_config")
    return {**config, **nested} if isinstance(nested, Mapping) else config


def _read_numbers(config: _Config, row: Architecture) -> dict[str, int]:
    numbers: dict[str, int] = {}
    for word in (*NEEDED, *OPTIONAL):
        keys = row.fields[word]
        derived = word == "intermediate_size" and row.intermediate_multiple > 0
        needed = word in NEEDED and not derived
        numbers[word] = config.number(*keys, needed=needed) if keys else 0
    heads, hidden_size = numbers["heads"], numbers["hidden_size"]
    numbers["intermediate_size"] = (
        numbers["intermediate_size"] or hidden_size * row.intermediate_multiple
    )
    if row.heads == "falcon":
        numbers["kv_heads"] = _falcon_kv_heads(config, row, numbers["kv_heads"])
    numbers["kv_heads"] = numbers["kv_heads"] or heads
    if not config.findings:
        config.findings += _contradictions(numbers, has_head_dim=numbers["head_dim"] > 0)
    numbers["head_dim"] = numbers["head_dim"] or (hidden_size // heads if heads else 0)
    return numbers


def _falcon_kv_heads(config: _Config, row: Architecture, stated: int) -> int:
    """Give 0 for as many as heads.

    Falcon-7B states 71 and has one: the number counts only for the new decoder.
    Before Falcon was in transformers there was no switch, and the number alone counted.
    """
    counts = config.switch("new_decoder_architecture", default=row.name == "RWForCausalLM")
    if counts and stated:
        return stated
    return 1 if config.switch("multi_query", default=not counts) else 0


def _contradictions(numbers: Mapping[str, int], *, has_head_dim: bool) -> list[Finding]:
    heads, hidden_size, kv_heads = (numbers[w] for w in ("heads", "hidden_size", "kv_heads"))
    findings = []
    if not has_head_dim and hidden_size % heads:
        message = f"config.json: hidden_size {hidden_size} is not a multiple of {heads} heads"
        findings.append(Finding("error", "config-value", message, PUBLISHED))
    if heads % kv_heads:
        message = f"config.json: {heads} attention heads cannot share {kv_heads} key-value heads"
        findings.append(Finding("error", "config-value", message, PUBLISHED))
    return findings


def _read_cache(config: _Config, row: Architecture, numbers: Mapping[str, int]) -> _Cache:
    layers, kv_heads, head_dim = (numbers[w] for w in ("layers", "kv_heads", "head_dim"))
    if row.cache == "mla":
        latent = config.number("kv_lora_rank") + config.number("qk_rope_head_dim")
        return _Cache(
            kv_bytes_per_token=layers * latent * KV_ELEMENT_BYTES,
            cached_layers=layers,
            attention="mla",
            attention_size=numbers["heads"] * config.number("v_head_dim"),
        )
    layer_bytes = 2 * kv_heads * head_dim * KV_ELEMENT_BYTES
    if row.linear:
        return _read_linear(config, layers, layer_bytes)
    window_layers, window_tokens = _read_window(config, row, layers)
    return _Cache(
        kv_bytes_per_token=layers * layer_bytes,
        cached_layers=layers,
        window_layers=window_layers if window_tokens else 0,
        window_tokens=window_tokens,
    )


def _read_window(config: _Config, row: Architecture, layers: int) -> tuple[int, int]:
    """Give how many layers look back how far at most; no window is 0 tokens."""
    window = config.number("sliding_window", needed=False) if row.window else 0
    if row.window != "pattern":
        return layers, window
    named = config.layers_of_type("sliding_attention")
    if named is not None:
        return min(named, layers), window
    every = config.number("sliding_window_pattern", needed=False)
    return layers - layers // max(1, every), window


def _read_linear(config: _Config, layers: int, layer_bytes: int) -> _Cache:
    """Read Qwen3-Next: a gated delta rule in most layers, attention in the rest."""
    keys, values = config.number("linear_num_key_heads"), config.number("linear_num_value_heads")
    key_dim, value_dim = (
        config.number("linear_key_head_dim"),
        config.number("linear_value_head_dim"),
    )
    taps = config.number("linear_conv_kernel_dim")
    attending = config.layers_of_type("full_attention")
    if attending is None:
        attending = layers // (config.number("full_attention_interval", needed=False) or 4)
    attending = min(attending, layers)
    mixed = (2 * keys * key_dim + values * value_dim) * max(0, taps - 1) * KV_ELEMENT_BYTES
    recurrent = values * key_dim * value_dim * STATE_ELEMENT_BYTES
    return _Cache(
        kv_bytes_per_token=max(1, attending) * layer_bytes,
        cached_layers=attending,
        state_bytes=(layers - attending) * (mixed + recurrent),
        split_counts=(keys, values),
    )


def _read_experts(config: _Config, row: Architecture) -> tuple[int, int, int]:
    """Give the number of experts, how many a token meets, and their intermediate size."""
    if row.experts is None:
        return 0, 0, 0
    keys = row.experts
    return config.number(*keys.count), config.number(*keys.per_token), config.number(*keys.size)


def _active(parameters: int, in_experts: int, experts: tuple[int, int, int]) -> int:
    count, per_token, _ = experts
    idle = in_experts * (count - per_token) // count if 0 < per_token <= count else 0
    return max(0, parameters - idle)


def _model_type(config: Mapping[str, Any]) -> str:
    stated = config.get("model_type")
    return stated if isinstance(stated, str) and len(stated) <= LONGEST_NAME else ""


def _architecture(config: Mapping[str, Any]) -> tuple[str, list[Finding]]:
    names = config.get("architectures")
    if not isinstance(names, list) or not names or not isinstance(names[0], str) or not names[0]:
        message = "config.json names no architecture, so no engine can load the model"
        return "", [Finding("error", "architecture-missing", message, PUBLISHED)]
    if not names[0].isidentifier() or len(names[0]) > LONGEST_NAME:
        message = f"config.json names {_shown(names[0])} as its architecture, which no engine has"
        return "", [Finding("error", "architecture-missing", message, PUBLISHED)]
    if is_native(names[0]):
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


def _add_up(
    tensors: Iterable[TensorInfo], head: frozenset[str], stated: int, quantization: Quantized
) -> _Sums:
    """Sort every tensor in one pass: a checkpoint may have 100 000 of them.

    `head` names the tensors of an MTP head, which only drafting loads; layers beyond the
    `stated` ones are not quantized.
    """
    sums = _Sums()
    layers: set[str] = set()
    served: set[str] = set()
    kinds: dict[tuple[object, ...], tuple[int | None, bool, bool]] = {}
    for tensor in tensors:
        name = tensor.name
        if name in head:
            sums.unserved_bytes += tensor.size
            continue
        match = LAYER.search(name)
        if match is None or OTHER_PARTS.search(name, 0, match.end()):
            sums.outside_bytes += tensor.size
            if match is not None or OTHER_PARTS.search(name):
                sums.tower_bytes += tensor.size
            match = None
        else:
            if match[1] not in layers:
                layers.add(match[1])
                if len(match[1]) < 10 and int(match[1]) < stated:
                    served.add(match[1])
        # Layers and experts repeat each other: what is asked of a name is asked once.
        rest = name[match.end() :] if match else name
        alike = (name[: match.start(1)] if match else "", rest, tensor.dtype, tensor.shape)
        kind = kinds.get(alike)
        if kind is None:
            in_experts = any(part in name for part in EXPERTS)
            count = parameters_in(tensor, quantization)
            kind = kinds[alike] = (count, in_experts, _is_packable(tensor, in_experts=in_experts))
        count, in_experts, is_packable = kind
        if match is not None and in_experts:
            sums.expert_bytes += tensor.size
        if count is None or sums.parameters is None:
            sums.parameters = None
            continue
        sums.parameters += count
        if match is None:
            continue
        if in_experts:
            sums.expert_parameters += count
        if is_packable:
            sums.linear_parameters += count
            if len(tensor.shape) == 2 and match[1] in served:
                first, alike_before = sums.packed.get(tensor.shape, (name, 0))
                sums.packed[tensor.shape] = first, alike_before + 1
    sums.layers = len(layers)
    return sums


def _is_packable(tensor: TensorInfo, *, in_experts: bool) -> bool:
    """Whether quantizers pack it: matrices of the layers, also those of all experts in one."""
    dimensions = len(tensor.shape)
    if dimensions == 3:
        return in_experts and not tensor.name.endswith(("bias", "_scales"))
    return dimensions == 2 and tensor.name.endswith(".weight") and not holds_whole(tensor.name)


def holds_whole(name: str) -> bool:
    """Whether a matrix of a layer stays in 16 bits."""
    return name.endswith(NOT_PACKED) or holds_no_weights(name)


def _disagreements(
    numbers: Mapping[str, int], tensors: tuple[TensorInfo, ...], sums: _Sums
) -> list[Finding]:
    """Compare config.json with the weights: a mixed-up pair loads for minutes, then fails."""
    findings = []
    embedding = next((t for t in tensors if t.name.endswith("embed_tokens.weight")), None)
    hidden_size = numbers["hidden_size"]
    if embedding and hidden_size and embedding.shape[1:] != (hidden_size,):
        message = (
            f"config.json says hidden_size {hidden_size}, "
            f"but the embedding's shape is {list(embedding.shape)}"
        )
        findings.append(Finding("error", "config-mismatch", message, PUBLISHED))
    stated = numbers["layers"]
    if sums.layers and sums.layers < stated:
        message = f"config.json says {stated} layers, but the weights have {sums.layers}"
        findings.append(Finding("error", "config-mismatch", message, PUBLISHED))
    return findings


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."

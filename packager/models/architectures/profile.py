"""The numbers of a model, from config.json and the headers of its weights.

Both are untrusted.  A wrong value becomes a finding, never an exception and never a guess: a plan
built on a guess fails an hour later.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from packager.catalog.model_types import generating_classes
from packager.catalog.served_architectures import is_listed
from packager.core.findings import Finding, errors_in
from packager.core.model import ModelFiles, ModelProfile, TensorInfo
from packager.core.pooling import Pooling
from packager.models.architectures.experts import Experts, read_experts
from packager.models.architectures.kinds import refuse_kind
from packager.models.architectures.layers import Cache, read_cache
from packager.models.architectures.mtp import MtpHead, read_mtp
from packager.models.architectures.numbers import read_numbers
from packager.models.architectures.pooling import check_pooling, longest_of, read_pooling
from packager.models.architectures.quantized import read_quantization
from packager.models.architectures.reading import PUBLISHED, Config, shown, text_config
from packager.models.architectures.routers import find_routers
from packager.models.architectures.spellings import Architecture, find_architecture, is_native
from packager.models.architectures.states import KV_ELEMENT_BYTES
from packager.models.architectures.sums import Sums, active_parameters, add_up
from packager.models.architectures.towers import read_tower

__all__ = [
    "KV_ELEMENT_BYTES",
    "SameModel",
    "make_profile",
    "read_head",
    "text_config",
]

LONGEST_NAME = 128  # of a class that an engine could have
MOST_NAMED = 3  # keys in a message

DTYPES = {"BF16": "bf16", "F16": "fp16", "F32": "fp32"}
CONFIG_DTYPES = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}


@dataclass(frozen=True, slots=True, eq=False)
class SameModel:
    """Model compared by identity: it is immutable, and hashing it would read every field."""

    model: ModelFiles

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SameModel) and other.model is self.model

    def __hash__(self) -> int:
        return id(self.model)


def make_profile(model: ModelFiles) -> tuple[ModelProfile, tuple[Finding, ...]]:
    """Read a model's numbers. With an error among the findings, the profile is not to be used.

    Ranking and presets plan one model many times: it is read once.
    """
    return _make_profile(SameModel(model))


@lru_cache(maxsize=2)  # a model and its draft
def _make_profile(same: SameModel) -> tuple[ModelProfile, tuple[Finding, ...]]:
    model = same.model
    name, name_findings = _architecture(model.config)
    pooling, of_kind = _read_kind(name, model)
    if errors_in(of_kind):
        return _no_profile(name, model), of_kind
    row = find_architecture(name)
    config = Config(model.config, row.defaults)
    numbers = read_numbers(config, row)
    quantization, findings = read_quantization(model.config)
    dtype, dtype_findings = _dtype(model.tensors, text_config(model.config))
    findings += dtype_findings
    cache = read_cache(config, row, numbers)
    head = frozenset(tensor.name for tensor in _read_head(same).tensors)
    sums = add_up(model.tensors, head, numbers["layers"], quantization, find_routers(model.tensors))
    findings += _disagreements(config, row, numbers, model.tensors, sums)
    experts = read_experts(config, row, has_weights=sums.expert_bytes > 0)
    unknown = (
        *_unknown(name, pooling),
        *_unknown_cache(cache, config.types),
        *_unclear_experts(experts, sums),
    )
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
        other_formats=quantization.others,
        group_size=quantization.group_size,
        quantization_options=quantization.options,
        known=not unknown,
        attention=cache.attention,
        attention_size=cache.attention_size,
        window_tokens=cache.window_tokens,
        window_layers=cache.window_layers,
        cached_layers=cache.cached_layers,
        state_bytes=cache.state_bytes,
        split_counts=cache.split_counts,
        experts=experts.count,
        experts_per_token=experts.per_token,
        expert_size=experts.size,
        active_parameters=active_parameters(parameters, sums.expert_parameters, experts),
        linear_parameters=0 if quantization.method else sums.linear_parameters,
        outside_bytes=sums.outside_bytes,
        tower_bytes=sums.tower_bytes,
        expert_bytes=sums.expert_bytes,
        unserved_bytes=sums.unserved_bytes,
        model_type=_model_type(model.config),
        kv_groups=cache.groups,
        unknown_cache=cache.unknown,
    )
    of_config = (*config.findings, *name_findings, *_untyped(model.config))
    found = (*of_config, *unknown, *findings, *of_kind)
    return _pooled(_with_tower(profile, model.config), pooling, model), found


def _with_tower(profile: ModelProfile, config: Mapping[str, Any]) -> ModelProfile:
    """Return the profile with the numbers of what reads images beside the model."""
    tower = read_tower(config)
    return replace(
        profile,
        tower_patch_bytes=tower.patch_bytes,
        tower_patches=tower.patches,
        tower_attention=tower.attention_size,
    )


def _read_kind(name: str, model: ModelFiles) -> tuple[Pooling | None, tuple[Finding, ...]]:
    """Read how a model gives vectors or scores, None where it writes text; refuse others."""
    if (refused := refuse_kind(name, model)) is not None:
        return None, (refused,)
    pooling = read_pooling(name, model)
    return pooling, tuple(check_pooling(name, pooling, model)) if pooling is not None else ()


def _pooled(profile: ModelProfile, pooling: Pooling | None, model: ModelFiles) -> ModelProfile:
    """Return the profile of a pooling model: without a cache where tokens see all others."""
    if pooling is None:
        return profile
    modules = pooling.modules
    projections = modules.projection_bytes if modules is not None else 0
    found = replace(
        profile,
        pooling=pooling,
        max_positions=longest_of(pooling, model, profile.max_positions),
        weight_bytes=profile.weight_bytes + projections,
        outside_bytes=profile.outside_bytes + projections,
    )
    if pooling.is_causal:
        return found
    return replace(
        found, kv_bytes_per_token=0, kv_groups=(), window_tokens=0, window_layers=0, state_bytes=0
    )


def _no_profile(name: str, model: ModelFiles) -> ModelProfile:
    """Return an empty profile for a model whose numbers would be meaningless."""
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


def _model_type(config: Mapping[str, Any]) -> str:
    stated = config.get("model_type")
    return stated if isinstance(stated, str) and len(stated) <= LONGEST_NAME else ""


def _untyped(config: Mapping[str, Any]) -> tuple[Finding, ...]:
    """Find that config.json names no type of model.

    Without one transformers takes a class whose name stands in the model's path, `opt` of
    `/opt/packager/model`, or raises.
    """
    if _model_type(config):
        return ()
    message = "config.json names no model_type, by which every engine chooses how to read it"
    return (Finding("error", "model-type-missing", message, PUBLISHED),)


def architecture_of(config: Mapping[str, Any]) -> str:
    """Return the class that a config.json names first; "" without one."""
    names = config.get("architectures")
    return str(names[0]) if isinstance(names, list) and names else ""


def _architecture(config: Mapping[str, Any]) -> tuple[str, list[Finding]]:
    names = config.get("architectures")
    if not isinstance(names, list) or not names or not isinstance(names[0], str) or not names[0]:
        message = "config.json names no architecture, so no engine can load the model"
        return "", [Finding("error", "architecture-missing", message, PUBLISHED)]
    if not names[0].isidentifier() or len(names[0]) > LONGEST_NAME:
        message = f"config.json names {shown(names[0])} as its architecture, which no engine has"
        return "", [Finding("error", "architecture-missing", message, PUBLISHED)]
    return names[0], []


def _unknown(name: str, pooling: Pooling | None) -> tuple[Finding, ...]:
    """Find that neither packager, nor transformers, nor an engine has the architecture."""
    if pooling is not None or not name or is_native(name) or is_listed(name):
        return ()
    if name in generating_classes():
        return ()
    message = f"architecture {shown(name)} is unknown; its memory is estimated as for Llama"
    hint = "check that the engine serves it, and leave more memory free than the plan says"
    return (Finding("warning", "architecture-unknown", message, hint),)


def _unknown_cache(cache: Cache, types: tuple[str, ...]) -> tuple[Finding, ...]:
    """Find layers whose cache is unknown: no figure of another kind is assumed."""
    if not cache.unknown:
        return ()
    named = ", ".join(map(shown, cache.unknown[:MOST_NAMED]))
    more = f" and {len(cache.unknown) - MOST_NAMED} more" if cache.unknown[MOST_NAMED:] else ""
    of_type = f" of model type {shown(types[0])}" if types else ""
    message = (
        f"config.json states {named}{more}, and packager does not know what layers{of_type} keep "
        "of a sequence: the memory of the KV cache is not known"
    )
    hint = (
        "how many bytes does a token take? start the engine once with this model: its log says "
        "how many tokens its cache holds, in which memory"
    )
    return (Finding("warning", "memory-unknown", message, hint),)


def _unclear_experts(experts: Experts, sums: Sums) -> tuple[Finding, ...]:
    """Find weights of experts of which config.json does not say how many a token meets."""
    if not sums.expert_parameters or (experts.count and experts.per_token):
        return ()
    message = (
        "the weights hold experts, and config.json does not say how many there are and how many "
        "a token meets: speed is estimated as if every token read every expert"
    )
    hint = "the real model is faster than the plan says; measure before you pay for its figures"
    return (Finding("warning", "experts-unknown", message, hint),)


def _dtype(tensors: tuple[TensorInfo, ...], config: Mapping[str, Any]) -> tuple[str, list[Finding]]:
    """Find the type that most unquantized bytes have, else the one config.json names."""
    if not tensors:
        hint = "package the directory that holds the .safetensors files"
        return "", [Finding("error", "no-weights", "the model has no weights", hint)]
    spelled: dict[str, int] = {}
    for tensor in tensors:
        spelled[tensor.dtype] = spelled.get(tensor.dtype, 0) + tensor.size
    sizes: Counter[str] = Counter()
    for dtype, size in spelled.items():
        if dtype in DTYPES:
            sizes[DTYPES[dtype]] += size
    if sizes:
        return max(sorted(sizes), key=lambda dtype: sizes[dtype]), []
    named = config.get("dtype", config.get("torch_dtype"))
    if isinstance(named, str) and named in CONFIG_DTYPES:
        return CONFIG_DTYPES[named], []
    message = f"the element type of the weights is not supported: {shown(tensors[0].dtype)}"
    hint = "save the weights as bfloat16, float16 or float32"
    return "", [Finding("error", "dtype-unknown", message, hint)]


def _disagreements(
    config: Config,
    row: Architecture,
    numbers: Mapping[str, int],
    tensors: tuple[TensorInfo, ...],
    sums: Sums,
) -> list[Finding]:
    """Compare config.json with the weights: a mixed-up pair loads for minutes, then fails."""
    findings = []
    embedding = next((t for t in tensors if t.name.endswith("embed_tokens.weight")), None)
    hidden_size = numbers["hidden_size"]
    if embedding and hidden_size and embedding.shape[1:] != (hidden_size,):
        said = _said(config, row.fields["hidden_size"], f"hidden_size {hidden_size}")
        message = f"{said}, but the embedding's shape is {list(embedding.shape)}"
        findings.append(Finding("error", "config-mismatch", message, PUBLISHED))
    stated = numbers["layers"]
    if sums.layers and sums.layers < stated:
        said = _said(config, row.fields["layers"], f"{stated} layers")
        message = f"{said}, but the weights have {sums.layers}"
        findings.append(Finding("error", "config-mismatch", message, PUBLISHED))
    return findings


def _said(config: Config, keys: tuple[str, ...], value: str) -> str:
    """Return who says so: config.json, or the class that it names."""
    if config.has(*keys):
        return f"config.json says {value}"
    return f"config.json does not state {keys[0]}, which means {value}"

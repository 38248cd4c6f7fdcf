"""Rows of the catalog that planning reads: accelerators, models, rules, prices.

Every row says where it is from and when that was true.  A number that nobody
published is 0 and means "not known", never "none".

Rules are data, and the situation that they are applied to is a flat mapping, so that a new engine
version needs a row and no code.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from packager.core.findings import Finding, Severity
from packager.core.instance import DeviceKind
from packager.core.versions import version_key

Link = Literal["nvlink", "pcie", "neuronlink", "xgmi", ""]

RuleValue = str | int | float | bool | tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Accelerator:
    """One device that tensor parallelism counts: a GPU, a NeuronCore, a host's processor."""

    name: str  # `A10G`, `NeuronCore-v2`
    kind: DeviceKind
    usable_bytes: int  # what software can see, before the engine takes its share
    bandwidth_bytes_s: float  # of the device's memory; 0.0: not known
    tflops: Mapping[str, float]  # dense, by `bf16` (or fp16 before Ampere), `int8`, `fp8`, `fp4`
    link: Link  # between the devices of the instance; "" when there is one device
    link_bytes_s: float  # of one device, in one direction; 0.0: not known
    compute_capability: float | None = None  # NVIDIA only: 8.6
    neuron_core: str = ""  # Neuron only: `v2`
    formats: frozenset[str] = frozenset()  # as in `Instance.formats`
    source: str
    date: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownDraft:
    """Published draft for a model."""

    kind: str  # a `DraftKind`, or one that is known and not rendered: `eagle2`
    reference: str  # hub id
    license: str = ""  # as its model card states it; "" if unknown
    weights: str = ""  # `pickle` where that is the only form; "" otherwise, or not known
    note: str = ""
    source: str
    date: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogModel:
    """A model that somebody has optimized before, and with what.

    None means that the source does not say.
    """

    family: str  # `LLaMA`
    hf_id: str
    jumpstart_id: str = ""
    architecture: str  # `LlamaForCausalLM`
    quantization: bool | None = None
    speculative: bool | None = None
    sagemaker_draft: bool | None = None  # SageMaker brings a draft that it does not name
    precompiled_neuron: bool = False  # for ml.inf2.48xlarge or ml.trn1.32xlarge
    preoptimized: bool = False
    eagle: str = ""  # which EAGLE the architecture is dispatched to: `eagle3`, `eagle2`
    draft_model: str = ""  # hub id
    drafts: tuple[KnownDraft, ...] = ()
    techniques: tuple[str, ...] = ()  # as the source names them, with their settings
    note: str = ""
    source: str
    date: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """Hourly price of an instance, with region, date and source."""

    instance: str
    usd_hour: float
    region: str
    basis: str  # `published[W]`, `derived ec2x1.15`, `offer file`, `user`
    source: str
    date: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One thing that does not go together, as data."""

    id: str  # the finding's code
    severity: Severity
    when: Mapping[str, RuleValue] = field(default_factory=lambda: MappingProxyType({}))
    reason: str  # may name the situation's values: `{instance}`
    instead: str  # the way out
    link: str = ""
    source: str
    date: str


# What a rule may ask of a situation.  A value is text, a number, a truth value or a set of words;
# "" means that there is none.  A key that is left out is not known, and no condition on it holds.
SITUATION_KEYS: Mapping[str, str] = MappingProxyType(
    {
        "target": "where the techniques are applied: `image`, or `sagemaker-job` for AWS's own",
        "model": "hub id or name",
        "architecture": "`LlamaForCausalLM`",
        "experts": "in a layer: 0 of a dense model",
        "family": "serving family: `vllm`",
        "variant": "which of the family's images: `tensorrt-llm`, `tgi-neuronx`, ``",
        "release": "short version of the container: `28` of LMI, `2.28.0` of a Neuron SDK",
        "engine": "`vllm`, `tgi`, `sglang`, `tensorrt-llm`",
        "engine_version": "`0.26.0`",
        "device": "`nvidia`, `amd`, `neuron`, `cpu`",
        "device_name": "`A10G`",
        "instance": "`ml.g5.12xlarge`",
        "instance_family": "`g5`",
        "compute_capability": "NVIDIA only: 8.6",
        "neuron_core": "Neuron only: `v2`",
        "formats": "set: what the device has kernels for, as in `Instance.formats`",
        "kernels": "set: what the engine computes with on a processor, as in `Kernel.format`",
        "quantize": "method: `awq`, `gptq`, `fp8`, `smoothquant`, ``",
        "quantize_options": "set: of the method, `static`, `block`, `kv`, `asymmetric`",
        "scheme": "`W4A16`, `W8A8-FP8`, `W8A16-FP8`, `W8A8-INT8`, `NVFP4`, ``",
        "checkpoint_format": "`compressed-tensors`, `awq`, `gptq`, `exl2`, ``",
        "existing": "true when the checkpoint is already quantized so",
        "experts_left_out": "true when no routed expert is quantized though the rest is",
        "base": "name of a base image that is packager's own: `vllm-cpu`, ``",
        "source_quantization": "method of the checkpoint as it comes, ``",
        "tool": "what optimizes: `llmcompressor`, `autoawq`, `lmi-neo`, ``",
        "draft": "kind of draft, as in `DraftKind`: `draft_model`, `eagle3`, `mtp`, `ngram`, ``",
        "draft_version": "of Medusa heads: `v1`, `v2`",
        "draft_heads": "how many heads a Medusa draft has",
        "speculative_tokens": "proposed at a time",
        "compile": "compiler: `vllm_cache`, `neuron`, `tensorrt_llm`, ``",
        "load_format": "`sagemaker_fast_model_loader`, `sharded_state`, ``",
        "dtype": "what the engine computes with: `bf16`, `fp16`",
        "kv_dtype": "`auto`, `fp8`",
        "kv_option": "what asks for a cache in FP8, for hints: `kv_dtype`",
        "attention": "what layers keep of a sequence: `heads`, or `mla` for one latent",
        "head_dim": "of a key",
        "tp_degree": "tensor-parallel degree",
        "pp_degree": "pipeline-parallel degree",
    }
)

COMPARISON = re.compile(r"(<=|>=|==|<|>)\s*(\S+)", re.ASCII)


def matching(rules: Iterable[Rule], situation: Mapping[str, object]) -> tuple[Rule, ...]:
    """Return the rules whose every condition holds. Pure; the rules' order is kept.

    A condition is the value itself, or one of a list, or: `*` for anything but
    none, `!x` for anything but x, `>=0.33,<0.40` for a range of versions or
    numbers, `>$other` for a comparison with another key, `~x` for a regular
    expression found anywhere.  With a set, `x` means that it is in it, `!x`
    that it is not.  A key missing from the situation fulfils no condition.
    """
    unknown = set(situation) - set(SITUATION_KEYS)
    if unknown:
        raise ValueError(f"no rule knows of {', '.join(sorted(unknown))}")
    return tuple(
        rule
        for rule in rules
        if all(_holds(wanted, situation.get(key), situation) for key, wanted in rule.when.items())
    )


def finding_of(rule: Rule, situation: Mapping[str, object]) -> Finding:
    """Return a rule as a finding, with the situation's values in it."""
    words = {key: _word(situation.get(key)) for key in SITUATION_KEYS}
    hint = rule.instead.format_map(words)
    if rule.link:
        hint = f"{hint}; see {rule.link}" if hint else f"see {rule.link}"
    return Finding(rule.severity, rule.id, rule.reason.format_map(words), hint)


def _holds(wanted: RuleValue, actual: object, situation: Mapping[str, object]) -> bool:
    if actual is None:
        return False
    if isinstance(wanted, tuple):
        allowed = [word for word in wanted if not word.startswith("!")]
        refused = [word for word in wanted if word.startswith("!")]
        return all(_holds(word, actual, situation) for word in refused) and (
            not allowed or any(_holds(word, actual, situation) for word in allowed)
        )
    if not isinstance(wanted, str):
        return type(wanted) is type(actual) and wanted == actual
    if isinstance(actual, frozenset | set):
        return (wanted[1:] not in actual) if wanted.startswith("!") else (wanted in actual)
    if wanted == "*":
        return actual != ""
    if wanted.startswith("!"):
        return str(actual) != wanted[1:]
    if wanted.startswith("~"):
        return re.search(wanted[1:], str(actual), re.IGNORECASE) is not None
    if wanted[:1] in "<>=" and wanted:
        return all(_compares(part, actual, situation) for part in wanted.split(","))
    return str(actual) == wanted


def _compares(condition: str, actual: object, situation: Mapping[str, object]) -> bool:
    match = COMPARISON.fullmatch(condition.strip())
    if match is None:
        raise ValueError(f"{condition!r} is not a comparison")
    sign, limit = match.groups()
    other = situation.get(limit[1:]) if limit.startswith("$") else limit
    mine, theirs = version_key(str(actual)), version_key(str(other))
    if mine is None or theirs is None:
        return False
    return {
        "<": mine < theirs,
        "<=": mine <= theirs,
        "==": mine == theirs,
        ">=": mine >= theirs,
        ">": mine > theirs,
    }[sign]


def _word(value: object) -> str:
    if isinstance(value, frozenset | set):
        return ", ".join(sorted(map(str, value)))
    return "?" if value is None else str(value)

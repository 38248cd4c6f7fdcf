"""Quantization in the stream: weights are rounded while they are read, and no tool is run.

Methods that round each matrix by itself need no model in memory: what stands for a matrix follows
from its own bytes.  The result is what the worker of llm-compressor writes, byte for byte.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from packager.core.facts import Facts
from packager.core.findings import Finding
from packager.core.image import Inline
from packager.core.model import ModelFile, ModelFiles, WeightsHeader
from packager.core.plan import Plan
from packager.core.ports import Quantizer
from packager.core.recipe import Step
from packager.core.techniques import Quantization, Scheme
from packager.core.units import decimal
from packager.estimate.sizing.left_out import quantized_modules
from packager.estimate.sizing.quantizable import read_table
from packager.models.architectures.profile import SameModel
from packager.optimize.quantize.llmcompressor import (
    SHARD_BYTES,
    LlmCompressorQuantizer,
    built_plain,
)
from packager.optimize.quantize.llmcompressor_options import is_symmetric, needs_data
from packager.optimize.quantize.stream.config import HEAD, kept_matrices, quantization_config
from packager.optimize.quantize.stream.formats import Format
from packager.optimize.quantize.stream.layout import (
    find_unaligned,
    quantized_files,
    read_tensors,
)
from packager.optimize.steps.inputs import carried_files
from packager.optimize.steps.report import duration

CONFIG = "config.json"
ADDED = "quantization_config"
METHODS = ("fp8", "rtn", "nvfp4", "mxfp4", "mxfp8", "w4afp8")
NO_NUMPY = "NumPy is not installed"
INSTALL = "`pip install 'numpy>=2.0'`"
BY_TOOL = "leave the quantizer out: a tool quantizes then"
# Of a layer: what llm-compressor 0.14 gives one global scale (observers/helpers.py).
FUSED = (
    ("gate_proj", "up_proj"),
    ("q_proj", "k_proj", "v_proj"),
    ("q_a_proj", "kv_a_proj_with_mqa"),
    ("w1", "w3"),
)
# Processor time for a byte read, with its hash: `benchmarks/stream.py` on an AMD EPYC, 2026-11-30.
COSTS_NS = {"fp8": 2.6, "int4": 3.5, "nvfp4": 3.6, "mxfp4": 2.9, "mxfp8": 2.6}
_TYPES = {"bfloat16": "BF16", "float16": "F16", "float32": "F32"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Selection:
    """Which tensors are quantized, and which others share the scale of each."""

    form: Format
    quantized: frozenset[str]
    fused: Mapping[str, tuple[str, ...]]


class StreamQuantizer(Quantizer):
    """Describes quantized files that are computed while they are read."""

    name = "stream"
    tool = ""
    streams = True

    def __init__(self) -> None:
        self._worker = LlmCompressorQuantizer()
        self.methods: Mapping[str, tuple[Scheme, ...]] = {
            name: self._worker.methods[name] for name in METHODS
        }

    def check(self, facts: Facts, plan: Plan) -> Iterable[Finding]:
        """Yield what the tool's quantizer finds, and why the stream cannot do it."""
        yield from self._worker.check(facts, plan)
        reason = why_not(facts, plan)
        if reason is None:
            yield _note(facts, plan)
        else:
            message = f"the model cannot be quantized in the stream: {reason}"
            hint = INSTALL if reason == NO_NUMPY else BY_TOOL
            yield Finding("error", "quantize-stream", message, hint)

    def step(self, facts: Facts, plan: Plan) -> Step:
        """Raise `NotImplementedError`: there is never a step."""
        raise NotImplementedError

    def describe(
        self, facts: Facts, plan: Plan, read_header: Callable[[ModelFile], WeightsHeader]
    ) -> tuple[ModelFile, ...]:
        """Return the quantized model's files; only headers are read."""
        assert plan.quantization is not None
        files = facts.model.files
        selected = _select(facts.model, _left_whole(facts, plan), form_of(plan.quantization))
        weights = (file for file in files if file.role == "weights")
        found = quantized_files(
            read_tensors(weights, read_header),
            selected.form,
            selected.quantized,
            selected.fused,
            shard_bytes=SHARD_BYTES,
        )
        ignore = kept_matrices(facts.model.tensors, selected.quantized)
        added = quantization_config(plan.quantization, selected.form, ignore)
        made = (*found, _config_file(facts.model.config, added), *carried_files(files))
        return tuple(sorted(made, key=lambda file: file.path))


def _note(facts: Facts, plan: Plan) -> Finding:
    assert plan.quantization is not None
    form = form_of(plan.quantization)
    size = sum(tensor.size for tensor in facts.model.tensors)
    seconds = duration(size * COSTS_NS[form.kind] / 1e9)
    message = (
        "weights are quantized while they are read: no tool, no model in memory, nothing on the "
        f"disk; about {seconds} of processor time for {decimal(size)}"
    )
    return Finding("note", "quantize-streams", message)


def why_not(facts: Facts, plan: Plan) -> str | None:
    """Return why a plan's quantization needs a tool; None where the stream does it."""
    chosen, model = plan.quantization, facts.model
    assert chosen is not None
    if chosen.method not in METHODS or chosen.groups or needs_data(chosen):
        return "the method looks at texts, or gives parts of the model schemes of their own"
    if chosen.checkpoint_format != "compressed-tensors":
        return f"the container reads the format of {chosen.checkpoint_format!r}"
    architecture = plan.profile.architecture
    if architecture not in read_table().streams:
        return f"nobody compared the result for {architecture or 'models of this kind'} yet"
    if plan.layers.max_size:
        return "layers have a size of their own, which the tool's result is split into"
    if facts.evaluation is not None:
        return "what it costs is to be measured, which needs its files"
    if plan.compiler or plan.is_presharded:
        return "a later step works on its files"
    if importlib.util.find_spec("numpy") is None:
        return NO_NUMPY
    return _unlike_tool(SameModel(model), _left_whole(facts, plan), form_of(chosen))


@lru_cache(maxsize=8)  # ranking plans one model many times
def _unlike_tool(same: SameModel, left: tuple[str, ...], form: Format) -> str | None:
    """Return what of a model the stream would write otherwise than the tool; None for nothing."""
    model, selected = same.model, _select(same.model, left, form)
    named = model.config.get("dtype", model.config.get("torch_dtype"))
    by_name = {tensor.name: tensor for tensor in model.tensors}
    for name in sorted(selected.quantized):
        tensor = by_name[name]
        if not selected.form.fits(tensor.shape, tensor.dtype):
            return f"{name} is {tensor.dtype} of shape {list(tensor.shape)}"
        if named is not None and _TYPES.get(str(named)) != tensor.dtype:
            return f"{name} is {tensor.dtype}, and config.json says {str(named)[:40]!r}"
    odd = find_unaligned(model.tensors, selected.form, selected.quantized, SHARD_BYTES)
    if odd:
        return f"{odd} would not begin at a multiple of its elements' size"
    ties = model.config.get("tie_word_embeddings")
    for tensor in model.tensors:
        if len(tensor.shape) == 3 and ".experts" in tensor.name:
            return f"{tensor.name} holds several matrices"
        if ties and tensor.name == f"{HEAD}.weight":
            return "its head is stored, and is the embedding by config.json"
    return None


def form_of(chosen: Quantization) -> Format:
    """Return the format of a method with its options."""
    options = dict(chosen.options)
    match chosen.method:
        case "fp8":
            return Format(kind="fp8", blocks="block" in options)
        case "rtn" | "w4afp8":
            return Format(
                kind="int4",
                group_size=chosen.group_size,
                packed=True,
                symmetric=is_symmetric(chosen),
            )
        case "nvfp4":
            return Format(kind="nvfp4", group_size=16)
        case "mxfp4":
            return Format(kind="mxfp4", group_size=32)
        case "mxfp8":
            return Format(kind="mxfp8", group_size=32)
    raise AssertionError(chosen.method)


def _left_whole(facts: Facts, plan: Plan) -> tuple[str, ...]:
    """Return what is ignored: as the request says, and what the engine builds unquantized."""
    return (*plan.quantizing.ignored, *built_plain(facts, plan))


def _select(model: ModelFiles, left: tuple[str, ...], form: Format) -> _Selection:
    modules = [name for name, _ in quantized_modules(model, left or None)]
    quantized = frozenset(f"{name}.weight" for name in modules)
    fused = dict(_fused(quantized)) if form.needs_largest else {}
    return _Selection(form=form, quantized=quantized, fused=fused)


def _fused(quantized: frozenset[str]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield matrices with those that share their global scale."""
    for name in quantized:
        path, _, own = name.removesuffix(".weight").rpartition(".")
        for group in FUSED:
            if own in group:
                others = tuple(f"{path}.{one}.weight" for one in group if one != own)
                if quantized.issuperset(others):
                    yield name, others


def _config_file(config: Mapping[str, Any], added: Mapping[str, Any]) -> ModelFile:
    document = {**config, ADDED: added}
    data = (json.dumps(document, indent=2, ensure_ascii=False) + "\n").encode()
    return ModelFile(path=CONFIG, role="config", content=Inline(data))

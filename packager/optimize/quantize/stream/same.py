"""Where the stream writes the tool's files, byte for byte, by plan and headers.

Only there it is taken, and only there a result's key names the arithmetic in place of a tool.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from packager.core.facts import Facts
from packager.core.model import ModelFiles
from packager.core.plan import Plan
from packager.core.techniques import Quantization
from packager.estimate.sizing.left_out import quantized_modules
from packager.estimate.sizing.mixed import REST, select_layers
from packager.estimate.sizing.quantizable import read_table
from packager.models.architectures.profile import SameModel
from packager.optimize.quantize.llmcompressor_ignore import entries_of
from packager.optimize.quantize.llmcompressor_options import SHARD_BYTES, is_symmetric, needs_data
from packager.optimize.quantize.stream.config import HEAD, StreamedGroup
from packager.optimize.quantize.stream.formats import Format
from packager.optimize.quantize.stream.layout import find_unaligned
from packager.optimize.quantize.stream.targets import patterns_of

METHODS = ("fp8", "int8", "rtn", "nvfp4", "mxfp4", "mxfp8", "w4afp8")
HEADER_BYTES = 256 * 1024  # of a layer, at most: tensors' names, tar
NO_NUMPY = "NumPy is not installed"
# Of a layer: what llm-compressor 0.14 gives one global scale (observers/helpers.py).
FUSED = (
    ("gate_proj", "up_proj"),
    ("q_proj", "k_proj", "v_proj"),
    ("q_a_proj", "kv_a_proj_with_mqa"),
    ("w1", "w3"),
)
_Part = tuple[Quantization, list[str], tuple[str, ...]]  # modules, and targets that name them
_TYPES = {"bfloat16": "BF16", "float16": "F16", "float32": "F32"}


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamedTensors:
    """Which tensors are quantized, and which others share the scale of each."""

    groups: tuple[StreamedGroup, ...]
    quantized: Mapping[str, Format]
    fused: Mapping[str, tuple[str, ...]]


def why_not(facts: Facts, plan: Plan) -> str | None:
    """Return why a plan's quantization needs a tool; None where the stream does it."""
    if reason := why_not_described(facts, plan):
        return reason
    return NO_NUMPY if importlib.util.find_spec("numpy") is None else None


def why_not_described(facts: Facts, plan: Plan) -> str | None:
    """Return why the layers of a plan are not the stream's, whoever computed them."""
    if reason := differs(facts, plan):
        return reason
    if plan.layers.max_size and (odd := _unaligned(facts, plan)):
        return f"in layers of that size {odd} would not begin at a multiple of its elements' size"
    if facts.evaluation is not None:
        return "what it costs is to be measured, which needs its files"
    if plan.compiler or plan.is_presharded:
        return "a later step works on its files"
    return None


def shard_bytes(plan: Plan) -> int:
    """Return how large a file may be, without its header."""
    asked = plan.layers.max_size
    return min(SHARD_BYTES, asked - HEADER_BYTES) if asked else SHARD_BYTES


def _unaligned(facts: Facts, plan: Plan) -> str:
    assert plan.quantization is not None
    left = left_whole(facts, plan)
    quantized = select(facts.model, left, plan.quantization, plan.quantizing.layers).quantized
    return find_unaligned(facts.model.tensors, quantized, shard_bytes(plan))


def differs(facts: Facts, plan: Plan) -> str | None:
    """Return why the stream's files would not be the tool's; None where they are, byte for byte."""
    chosen = plan.quantization
    assert chosen is not None
    if needs_data(chosen) or any(part.method not in METHODS for part in chosen.parts):
        return "the method looks at texts"
    if chosen.checkpoint_format != "compressed-tensors":
        return f"the container reads the format of {chosen.checkpoint_format!r}"
    architecture = plan.profile.architecture
    if architecture not in read_table().streams:
        return f"nobody compared the result for {architecture or 'models of this kind'} yet"
    if chosen.groups and architecture not in read_table().streams_mixed:
        return f"nobody compared schemes of parts for {architecture} yet"
    return _unlike_tool(
        SameModel(facts.model), left_whole(facts, plan), chosen, plan.quantizing.layers
    )


@lru_cache(maxsize=8)  # ranking plans one model many times
def _unlike_tool(
    same: SameModel, left: tuple[str, ...], chosen: Quantization, layers: tuple[str, ...]
) -> str | None:
    """Return what of a model the stream would write otherwise than the tool; None for nothing."""
    model, selected = same.model, select(same.model, left, chosen, layers)
    named = model.config.get("dtype", model.config.get("torch_dtype"))
    by_name = {tensor.name: tensor for tensor in model.tensors}
    for name in sorted(selected.quantized):
        tensor = by_name[name]
        if not selected.quantized[name].fits(tensor.shape, tensor.dtype):
            return f"{name} is {tensor.dtype} of shape {list(tensor.shape)}"
        if named is not None and _TYPES.get(str(named)) != tensor.dtype:
            return f"{name} is {tensor.dtype}, and config.json says {str(named)[:40]!r}"
    odd = find_unaligned(model.tensors, selected.quantized, SHARD_BYTES)
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
        case "int8":
            return Format(kind="int8")
        case "rtn" | "w4afp8":
            return Format(
                kind="int8" if chosen.bits == 8 else "int4",
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


def left_whole(facts: Facts, plan: Plan) -> tuple[str, ...]:
    """Return what is ignored: as the request says, and what the engine builds unquantized."""
    return entries_of(facts, plan)


def select(
    model: ModelFiles, left: tuple[str, ...], chosen: Quantization, layers: tuple[str, ...]
) -> StreamedTensors:
    """Return what a plan quantizes; `layers` are its values of `--quantize-layer`."""
    if not chosen.groups:
        modules = [name for name, _ in quantized_modules(model, left or None)]
        parts: Iterable[_Part] = [(chosen, modules, (REST,))]
    else:
        parts = _parts(model, left, chosen, layers)
    groups, quantized = [], dict[str, Format]()
    for part, modules, targets in parts:
        form = form_of(part)
        groups.append(StreamedGroup(chosen=part, form=form, targets=targets))
        quantized |= {f"{name}.weight": form for name in modules}
    shared = frozenset(name for name, form in quantized.items() if form.needs_largest)
    return StreamedTensors(groups=tuple(groups), quantized=quantized, fused=dict(_fused(shared)))


def _parts(
    model: ModelFiles, left: tuple[str, ...], chosen: Quantization, layers: tuple[str, ...]
) -> Iterator[_Part]:
    """Yield the parts that have schemes of their own: modules, and what readers know them by."""
    selected, shapes = select_layers(layers, model, left or None)
    places: list[list[str]] = [[] for _ in chosen.groups]
    for module in shapes:
        places[selected.get(module, len(layers))].append(module)
    for number, (group, own) in enumerate(zip(chosen.groups, places, strict=True)):
        if group.quantization is None or not own:
            continue
        if group.target == REST and number == len(layers):
            yield group.quantization, own, (REST,)
            continue
        others = {one for at, found in enumerate(places) if at != number for one in found}
        yield group.quantization, own, tuple(sorted({*patterns_of(own, others)}))


def _fused(quantized: frozenset[str]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield matrices with those that share their global scale."""
    for name in quantized:
        path, _, own = name.removesuffix(".weight").rpartition(".")
        for group in FUSED:
            if own in group:
                others = tuple(f"{path}.{one}.weight" for one in group if one != own)
                if quantized.issuperset(others):
                    yield name, others

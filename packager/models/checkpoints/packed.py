"""Packed weights and their scales, as the headers of a quantized checkpoint declare them.

Engines allocate what quantization_config promises and fill it with what the files have:
a scale that is missing stays what was in memory, and one of another shape ends the start.
Names and shapes are those of the writers (compressed-tensors 0.20, AutoAWQ 0.2.9, GPTQModel,
ModelOpt, bitsandbytes 0.4x, Quark, HQQ) and of vLLM 0.33's loaders.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from packager.core.model import TensorInfo
from packager.models.architectures.demands import arguments_of, config_groups, modelopt_algorithm
from packager.models.checkpoints.blocked import Blocked, block_of, make_blocked

Shape = tuple[int, ...]
Fits = Callable[[Shape, Shape], bool]  # packed weight's shape, companion's shape

QUANTIZED = frozenset({"F8_E4M3", "F8_E5M2", "F8_E4M3FNUZ", "F8_E5M2FNUZ", "I8", "F4"})
FP8 = frozenset({"F8_E4M3", "F8_E5M2", "F8_E4M3FNUZ", "F8_E5M2FNUZ"})
SCALARS: frozenset[Shape] = frozenset({(), (1,), (1, 1)})
AUTO_AWQ = "auto_round:auto_awq"
AUTO_GPTQ = ("", "auto_round:auto_gptq", "auto_round:gptqmodel")


@dataclass(frozen=True, slots=True, kw_only=True)
class Companion:
    """A tensor that a packed weight cannot be unpacked without."""

    suffixes: tuple[str, ...]  # behind the weight's stem; one of them is enough
    fits: Fits | None = None  # None: any shape
    scales: bool = True  # False: zero points and indices, which may be 0
    of_module: bool = False  # behind the module's name, not the weight's


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Storage layout of one kind of packed weight."""

    suffix: str  # of the packed tensor; the rest of its name is the stem
    dtypes: frozenset[str]
    companions: tuple[Companion, ...]
    block: tuple[int, int] = (1, 1)  # outputs and inputs that share a scale; 1: each, or all
    unpacked: Callable[[Shape], Shape] | None = None  # outputs and inputs in a packed tensor
    packed: int = 1  # outputs whose zero points, or weights, share a word


@dataclass(frozen=True, slots=True, kw_only=True)
class Packed:
    """One packed weight and what belongs to it."""

    weight: TensorInfo
    module: str  # `model.layers.0.self_attn.q_proj`
    scales: tuple[TensorInfo, ...] = ()
    missing: str = ""  # the companion that is not there
    misshapen: str = ""  # why one does not fit; "" when all do
    blocked: Blocked | None = None  # None where no block or group is known


def read_packed(stated: Mapping[str, Any], tensors: tuple[TensorInfo, ...]) -> tuple[Packed, ...]:
    """Find every packed weight with its companions; () for methods without a known layout."""
    layouts = layouts_of(stated)
    if not layouts:
        return ()
    by_name = {tensor.name: tensor for tensor in tensors}
    found = []
    for tensor in tensors:
        fitting = [
            layout
            for layout in layouts
            if tensor.dtype in layout.dtypes and tensor.name.endswith(layout.suffix)
        ]
        if fitting and not _is_companion(tensor.name):
            found.append(_first_sound([_match(tensor, one, by_name) for one in fitting]))
    return tuple(found)


def layouts_of(stated: Mapping[str, Any]) -> tuple[Layout, ...]:
    """Return the layouts that quantization_config allows for; () for unknown methods."""
    method = str(stated.get("quant_method", "")).lower().replace("_", "-")
    if method == "awq":
        return (_awq(stated),)
    if method == "gptq":
        return (_gptq(stated),)
    if method == "auto-round":
        packing = str(stated.get("packing_format") or "")
        if packing == AUTO_AWQ:
            return (_awq(stated),)
        return (_gptq(stated),) if packing in AUTO_GPTQ else ()
    if method == "compressed-tensors":
        return tuple(layout for group in config_groups(stated) if (layout := _group(stated, group)))
    if method in ("fp8", "fbgemm-fp8"):
        return (_fp8(stated),)
    if method.startswith("modelopt"):
        return tuple(_modelopt(stated))
    if method == "mxfp4":
        scales = Companion(suffixes=("_scales",), fits=lambda weight, own: own == weight[:-1])
        return (Layout(suffix="_blocks", dtypes=frozenset({"U8"}), companions=(scales,)),)
    if method == "bitsandbytes":
        return _bitsandbytes()
    if method == "quark":
        return _quark(stated)
    if method == "hqq":
        companions = (Companion(suffixes=(".scale",)), Companion(suffixes=(".zero",), scales=False))
        dtypes = frozenset({"U8", "I8", "I32", "I16", "F16", "BF16", "F32"})
        return (Layout(suffix=".W_q", dtypes=dtypes, companions=companions),)
    return ()


def _first_sound(found: list[Packed]) -> Packed:
    """Return the first layout that fits; else the one with the most tensors present."""
    sound = [one for one in found if not one.missing and not one.misshapen]
    return next(iter(sound), min(found, key=lambda one: bool(one.missing)))


def _match(tensor: TensorInfo, layout: Layout, by_name: Mapping[str, TensorInfo]) -> Packed:
    stem = tensor.name.removesuffix(layout.suffix) if layout.suffix else tensor.name
    scales, missing, misshapen = [], "", ""
    for companion in layout.companions:
        start = stem.removesuffix(".weight") if companion.of_module else stem
        names = [f"{start}{suffix}" for suffix in companion.suffixes]
        own = next((by_name[name] for name in names if name in by_name), None)
        if own is None:
            missing = missing or names[0]
            continue
        if companion.scales:
            scales.append(own)
        if companion.fits and not misshapen and not companion.fits(tensor.shape, own.shape):
            misshapen = f"{own.name} has the shape {_shown(own.shape)}, the weight "
            misshapen += _shown(tensor.shape)
    module = stem.removesuffix(".weight")
    return Packed(
        weight=tensor,
        module=module,
        scales=tuple(scales),
        missing=missing,
        misshapen=misshapen,
        blocked=_blocked(module, tensor.shape, layout),
    )


def _blocked(module: str, shape: Shape, layout: Layout) -> Blocked | None:
    rows, columns = layout.block
    by_rows = rows == 1 and layout.suffix in (".weight", "")
    if len(shape) < 2 or (max(rows, columns, layout.packed) < 2 and by_rows):
        return None
    outputs, inputs = (layout.unpacked(shape) if layout.unpacked else shape)[-2:]
    sides, block = (outputs, inputs), (rows, columns)
    return make_blocked(module, sides, block, packed=layout.packed, by_rows=by_rows)


def _shown(shape: Shape) -> str:
    return f"[{', '.join(map(str, shape[:8]))}]"


COMPANION = re.compile(
    r"(?:[._](?:scales?|scale_inv|scale_2|zero_point|zeros|SCB|shape|g_idx)|\.qzeros|\.absmax"
    r"|\.quant_map|\.nested_absmax|\.nested_quant_map|bitsandbytes__(?:nf4|fp4)|\.weight_format)\Z"
)


def _is_companion(name: str) -> bool:
    return COMPANION.search(name) is not None


def _awq(stated: Mapping[str, Any]) -> Layout:
    bits = _count(stated.get("bits", stated.get("w_bit")))
    size = stated.get("group_size", stated.get("q_group_size"))
    version = str(stated.get("version") or "gemm").lower()
    checked = bits in (4, 8) and version == "gemm" and not stated.get("extra_config")

    def inputs_outputs(weight: Shape) -> tuple[int, int]:
        return weight[0], weight[1] * 32 // bits

    def zeros(weight: Shape, own: Shape) -> bool:
        return own == (_groups(weight[0], size), weight[1])

    def scales(weight: Shape, own: Shape) -> bool:
        inputs, outputs = inputs_outputs(weight)
        return own == (_groups(inputs, size), outputs)

    companions = [Companion(suffixes=(".scales",), fits=_flat(scales) if checked else None)]
    if stated.get("zero_point") is not False:
        fits = _flat(zeros) if checked else None
        companions.append(Companion(suffixes=(".qzeros",), fits=fits, scales=False))
    return Layout(
        suffix=".qweight",
        dtypes=frozenset({"I32"}),
        companions=tuple(companions),
        block=(1, _count(size) or 1) if checked else (1, 1),
        unpacked=(lambda weight: inputs_outputs(weight)[::-1]) if checked else None,
        packed=32 // bits if checked else 1,
    )


def _gptq(stated: Mapping[str, Any]) -> Layout:
    bits, size = _count(stated.get("bits")), stated.get("group_size")
    checked = 0 < bits <= 8 and not stated.get("dynamic") and not stated.get("extra_config")

    def inputs(weight: Shape) -> int:
        return weight[0] * 32 // bits

    def scales(weight: Shape, own: Shape) -> bool:
        return own == (_groups(inputs(weight), size), weight[1])

    def zeros(weight: Shape, own: Shape) -> bool:
        return own == (_groups(inputs(weight), size), math.ceil(weight[1] * bits / 32))

    companions = [
        Companion(suffixes=(".scales",), fits=_flat(scales) if checked else None),
        Companion(suffixes=(".qzeros",), fits=_flat(zeros) if checked else None, scales=False),
    ]
    if stated.get("desc_act") is True:
        fits = _flat(lambda weight, own: own == (inputs(weight),)) if checked else None
        companions.append(Companion(suffixes=(".g_idx",), fits=fits, scales=False))
    return Layout(
        suffix=".qweight",
        dtypes=frozenset({"I32"}),
        companions=tuple(companions),
        block=(1, _count(size) or 1) if checked else (1, 1),
        unpacked=(lambda weight: (weight[1], inputs(weight))) if checked else None,
        packed=32 // bits if checked else 1,
    )


def _group(stated: Mapping[str, Any], group: Mapping[str, Any]) -> Layout | None:
    """Return the layout of a group of compressed-tensors; None for formats not known here."""
    layout = group.get("format") or stated.get("format")
    weights, inputs = arguments_of(group, "weights"), arguments_of(group, "input_activations")
    if layout == "pack-quantized":
        return _pack_quantized(weights, inputs)
    if layout == "nvfp4-pack-quantized":
        companions = [
            Companion(suffixes=(".weight_scale",), fits=_per_group(16, packed=2)),
            Companion(suffixes=(".weight_global_scale",), fits=_one_for_all),
        ]
        if inputs and inputs.get("dynamic") is not True:
            companions.append(Companion(suffixes=(".input_global_scale",), fits=_one_for_all))
        dtypes = frozenset({"U8"})
        return Layout(
            suffix=".weight_packed",
            dtypes=dtypes,
            companions=tuple(companions),
            block=(1, 16),
            unpacked=_two_a_byte,
        )
    if layout == "mxfp4-pack-quantized":
        scale = Companion(suffixes=(".weight_scale",), fits=_per_group(32, packed=2))
        return Layout(
            suffix=".weight_packed",
            dtypes=frozenset({"U8"}),
            companions=(scale,),
            block=(1, 32),
            unpacked=_two_a_byte,
        )
    if layout in ("float-quantized", "int-quantized", "naive-quantized", "mxfp8-quantized"):
        return _unpacked(weights, inputs)
    return None


def _pack_quantized(weights: Mapping[str, Any], inputs: Mapping[str, Any]) -> Layout | None:
    bits = _count(weights.get("num_bits"))
    if not 0 < bits <= 8:
        return None
    factor, size = 32 // bits, weights.get("group_size")
    grouped = weights.get("strategy") == "group"

    def groups(weight: Shape) -> range:
        """Count the groups: the last word of a row may hold fewer weights than fit.

        Bits that do not divide a word are packed densely by writers since 0.14, padded before.
        """
        if not grouped:
            return range(1, 2)
        least, most = (weight[-1] - 1) * factor + 1, weight[-1] * 32 // bits
        return range(_groups(least, size), _groups(most, size) + 1)

    def scale(weight: Shape, own: Shape) -> bool:
        return own[:-1] == weight[:-1] and own[-1] in groups(weight)

    def zeros(weight: Shape, own: Shape) -> bool:
        rows = weight[-2]
        fitting = (rows, math.ceil(rows / factor), math.ceil(rows * bits / 32))
        return len(own) == len(weight) and own[-1] in groups(weight) and own[-2] in fitting

    companions = [Companion(suffixes=(".weight_scale",), fits=_flat(scale))]
    if weights.get("symmetric") is False:
        companion = Companion(suffixes=(".weight_zero_point",), fits=_flat(zeros), scales=False)
        companions.append(companion)
    companions += _static_inputs(inputs)
    return Layout(
        suffix=".weight_packed",
        dtypes=frozenset({"I32"}),
        companions=tuple(companions),
        block=(1, _count(size) or 1) if grouped else (1, 1),
        unpacked=lambda weight: (weight[-2], weight[-1] * 32 // bits),
        packed=factor if weights.get("symmetric") is False else 1,
    )


def _unpacked(weights: Mapping[str, Any], inputs: Mapping[str, Any]) -> Layout:
    strategy, size = weights.get("strategy"), weights.get("group_size")
    fits: Fits | None = None
    block = (1, 1)
    if strategy == "tensor":
        fits = _one_for_all
    elif strategy == "channel":
        fits = _per_channel
    elif strategy == "block":
        fits = _per_block(weights.get("block_structure"))
        block = block_of(weights.get("block_structure"))
    elif strategy == "group" and _count(size):
        fits = _per_group(_count(size))
        block = (1, _count(size))
    companions = [Companion(suffixes=(".weight_scale",), fits=fits)]
    if weights.get("symmetric") is False:
        companions.append(Companion(suffixes=(".weight_zero_point",), scales=False))
    companions += _static_inputs(inputs)
    return Layout(suffix=".weight", dtypes=QUANTIZED, companions=tuple(companions), block=block)


def _static_inputs(inputs: Mapping[str, Any]) -> Iterator[Companion]:
    if inputs.get("dynamic") is not False:
        return
    yield Companion(suffixes=(".input_scale",))
    if inputs.get("symmetric") is False:
        yield Companion(suffixes=(".input_zero_point",), scales=False)


def _fp8(stated: Mapping[str, Any]) -> Layout:
    """Return DeepSeek's layout: a scale for a block, or one for a matrix or for each output.

    Experts that are one tensor have no `.weight` behind their name, so nothing is cut off.
    """
    block = stated.get("weight_block_size")
    fits = _per_block(block) if block else None
    companions = [Companion(suffixes=("_scale_inv", "_scale"), fits=fits)]
    if stated.get("activation_scheme") == "static":
        names = (".input_scale", ".activation_scale", "_input_scale", "_activation_scale")
        companions.append(Companion(suffixes=names, of_module=True))
    return Layout(suffix="", dtypes=FP8, companions=tuple(companions), block=block_of(block))


def _modelopt(stated: Mapping[str, Any]) -> Iterator[Layout]:
    algorithm = modelopt_algorithm(stated)
    if algorithm in ("NVFP4", "W4A16_NVFP4", "MIXED_PRECISION", ""):
        companions = [
            Companion(suffixes=(".weight_scale",), fits=_per_group(16, packed=2)),
            Companion(suffixes=(".weight_scale_2",), fits=_one_for_all),
        ]
        if algorithm == "NVFP4":
            companions.append(Companion(suffixes=(".input_scale",), fits=_one_for_all))
        yield Layout(
            suffix=".weight",
            dtypes=frozenset({"U8"}),
            companions=tuple(companions),
            block=(1, 16),
            unpacked=_two_a_byte,
        )
    if algorithm in ("NVFP4", "W4A16_NVFP4"):
        return
    companions = [Companion(suffixes=(".weight_scale",))]
    if algorithm == "FP8":
        companions = [
            Companion(suffixes=(".weight_scale",), fits=_one_for_all),
            Companion(suffixes=(".input_scale",), fits=_one_for_all),
        ]
    yield Layout(suffix=".weight", dtypes=FP8, companions=tuple(companions))


def _bitsandbytes() -> tuple[Layout, ...]:
    four = (
        Companion(suffixes=(".absmax",)),
        Companion(suffixes=(".quant_map",), scales=False),
        Companion(
            suffixes=(".quant_state.bitsandbytes__nf4", ".quant_state.bitsandbytes__fp4"),
            scales=False,
        ),
    )
    eight = (Companion(suffixes=(".SCB",), fits=lambda weight, own: own[:1] == weight[:1]),)
    return (
        # The stem keeps `.weight`: `q_proj.weight.absmax`.
        Layout(suffix="", dtypes=frozenset({"U8"}), companions=four),
        Layout(suffix=".weight", dtypes=frozenset({"I8"}), companions=eight),
    )


def _quark(stated: Mapping[str, Any]) -> tuple[Layout, ...]:
    general = arguments_of(stated, "global_quant_config")
    inputs = general.get("input_tensors")
    static = isinstance(inputs, Mapping) and inputs.get("is_dynamic") is False
    companions = [Companion(suffixes=(".weight_scale",))]
    if static and not stated.get("layer_quant_config"):
        companions.append(Companion(suffixes=(".input_scale",)))
    return (Layout(suffix=".weight", dtypes=QUANTIZED | {"U8"}, companions=tuple(companions)),)


def _one_for_all(_: Shape, own: Shape) -> bool:
    return own in SCALARS


def _per_channel(weight: Shape, own: Shape) -> bool:
    return own in ((*weight[:-1], 1), weight[:-1])


def _per_group(size: int, *, packed: int = 1) -> Fits:
    """Return the test for a scale for `size` inputs, of which a byte holds `packed`."""

    def fits(weight: Shape, own: Shape) -> bool:
        groups = math.ceil(weight[-1] * packed / size)
        return own[:-1] == weight[:-1] and own[-1] == groups

    return _flat(fits)


def _per_block(block: object) -> Fits | None:
    """Return the test for a scale for a block of outputs and inputs; None for an odd block."""
    rows, columns = block_of(block)
    if max(rows, columns) < 2:
        return None

    def fits(weight: Shape, own: Shape) -> bool:
        blocks = (math.ceil(weight[-2] / rows), math.ceil(weight[-1] / columns))
        return own == (*weight[:-2], *blocks)

    return _flat(fits)


def _two_a_byte(weight: Shape) -> Shape:
    return (weight[-2], weight[-1] * 2)


def _flat(fits: Fits) -> Fits:
    """Refuse shapes that have too few dimensions to be compared."""
    return lambda weight, own: len(weight) >= 2 and len(own) >= 1 and fits(weight, own)


def _groups(inputs: int, size: object) -> int:
    """Count groups along the inputs; a size of -1, or none, is one for all."""
    count = _count(size)
    return math.ceil(inputs / count) if count else 1


def _count(value: object) -> int:
    return value if type(value) is int and 0 < value <= 2**31 else 0

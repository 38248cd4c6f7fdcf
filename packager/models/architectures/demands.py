"""Requirements of an already quantized checkpoint on an engine, from config.json and headers.

Pure: `packager.engines.prequantized` compares the demands with what an engine's version loads.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from packager.core.model import TensorInfo
from packager.core.prequantized import CheckpointRequirements
from packager.core.techniques import Quantization

SPELLINGS = {"compressed_tensors": "compressed-tensors"}
MAX_GROUPS = 256  # of config_groups; llm-compressor writes a handful

# quant_algo of ModelOpt → what engines select the loader by
MODELOPT = {"NVFP4": "modelopt_fp4", "W4A16_NVFP4": "modelopt_fp4", "MXFP8": "modelopt_mxfp8"}
MODELOPT_FIRST = frozenset({"FP8", "NVFP4"})  # that every version loads
MODELOPT_MIXED = "MIXED_PRECISION"

# A plain head has `lm_head.weight` and perhaps a bias.
HEAD = "lm_head."
PLAIN_HEAD = ("lm_head.weight", "lm_head.bias")
FLOATS = frozenset({"F64", "F32", "F16", "BF16"})


def read_arrived(
    config: Mapping[str, Any], tensors: Iterable[TensorInfo]
) -> CheckpointRequirements | None:
    """Read the demands; None where config.json declares no quantization, or none that is named."""
    stated = stated_quantization(config)
    spelled = stated.get("quant_method")
    if not isinstance(spelled, str) or not spelled:
        return None
    method = SPELLINGS.get(spelled.lower(), spelled.lower())
    loader, features, keys = method, list[str](), frozenset[str]()
    if method == "compressed-tensors":
        groups = tuple(config_groups(stated))
        features = [*_compressed_features(stated, groups)]
        if any(_is_by_kind(group) for group in groups):
            features.append(BY_KIND)
        if any(EXPERTS in one.name and one.name.endswith(ZEROS) for one in tensors):
            features.append(EXPERT_ZEROS)
        keys = frozenset(key for group in groups for one in _arguments(group) for key in one)
    elif method == "gptq" and _orders_groups(stated):
        features = ["activation-order"]
    elif method.startswith("modelopt"):
        algorithm = modelopt_algorithm(stated)
        mixed = "modelopt_mixed" if algorithm == MODELOPT_MIXED else "modelopt"
        loader = MODELOPT.get(algorithm, mixed) if method == "modelopt" else method
        if algorithm and algorithm not in MODELOPT_FIRST:
            features = [f"modelopt {algorithm}"]
    writer = stated.get("version")
    return CheckpointRequirements(
        method=method,
        loader=loader,
        features=tuple(dict.fromkeys(features)),
        keys=keys,
        writer=writer if method == "compressed-tensors" and isinstance(writer, str) else "",
        head=next((tensor.name for tensor in tensors if _shows_quantized_head(tensor)), ""),
        head_declared=_declares_head(method, stated),
    )


# Schemes for classes of modules or patterns of names, `Linear`, and not for modules by their paths.
BY_KIND = "targets-by-kind"
EXPERTS, ZEROS = ".experts.", ".weight_zero_point"
EXPERT_ZEROS = "expert-zero-points"

# What our own quantizer writes, by the beginning of a scheme's name: a feature, and a key whose
# value engines need, so that it cannot be left out for older ones.
WRITTEN = {
    "NVFP4": ("nvfp4", "scale_dtype"),
    "MXFP4": ("mxfp4", "scale_dtype"),
    "MXFP8": ("mxfp8", "scale_dtype"),
    "W4AFP8": ("w4a8-fp8", ""),
    "W4A8-FP8": ("w4a8-fp8", ""),
}


# Formats of compressed-tensors by the beginning of a scheme's name; other integers are packed.
FORMATS = {
    "NVFP4": "nvfp4-pack-quantized",
    "MXFP4": "mxfp4-pack-quantized",
    "MXFP8": "mxfp8-quantized",
    "W8A8-FP8": "float-quantized",
    "W8A8-INT8": "int-quantized",
    "W8A16-FP8": "float-quantized",
}


def written_demands(
    quantization: Quantization | None, *, experts: bool = False
) -> CheckpointRequirements | None:
    """Return what a checkpoint will demand that a step of the plan writes; None without one.

    `experts` of a mixture: their zero points are another demand than those of other matrices.
    """
    if quantization is None or quantization.existing or not quantization.checkpoint_format:
        return None
    method = quantization.checkpoint_format
    schemes = [part.scheme for part in quantization.parts if part.scheme]
    found = [_beginning(WRITTEN, scheme) for scheme in schemes]
    features = [feature for feature, _ in filter(None, found)]
    if len({_beginning(FORMATS, scheme) for scheme in schemes}) > 1:
        features.append("mixed-precision")
    zeros = (
        part.layout is not None and part.layout.zero_bits and not part.experts_left_out
        for part in quantization.parts
    )
    if method == "compressed-tensors" and experts and any(zeros):
        features.append(EXPERT_ZEROS)
    if quantization.scales_cache:
        features.append("cache-scales")
    if method == "compressed-tensors" and schemes:
        features.append(BY_KIND)
    if not schemes:
        features.append("cache-scales-alone")
    has_head = any(group.head and group.quantization for group in quantization.groups)
    return CheckpointRequirements(
        method=method,
        loader=method,
        features=tuple(dict.fromkeys(features)),
        keys=frozenset(key for _, key in filter(None, found) if key),
        head=HEAD.rstrip(".") if has_head else "",
        head_declared=True,
    )


def _beginning(table: Mapping[str, Any], scheme: str) -> Any:
    return next((value for start, value in table.items() if scheme.startswith(start)), None)


def stated_quantization(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what config.json states: at its top, or of the language model that it nests."""
    nested = config.get("text_config")
    for part in (config, nested if isinstance(nested, Mapping) else {}):
        for key in ("quantization_config", "compression_config"):
            if isinstance(stated := part.get(key), Mapping):
                return stated
    return {}


def config_groups(stated: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the groups of layers that compressed-tensors distinguishes."""
    groups = stated.get("config_groups")
    values = list(groups.values())[:MAX_GROUPS] if isinstance(groups, Mapping) else []
    return (group for group in values if isinstance(group, Mapping))


def modelopt_algorithm(stated: Mapping[str, Any]) -> str:
    """Return ModelOpt's `quant_algo`, which two generations of it keep in different places."""
    nested = stated.get("quantization")
    for part in (stated, nested if isinstance(nested, Mapping) else {}):
        if isinstance(algorithm := part.get("quant_algo"), str):
            return algorithm.upper()[:40]
    return ""


def arguments_of(group: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return how a group's `weights` or `input_activations` are quantized; {}: they are not."""
    found = group.get(name)
    return found if isinstance(found, Mapping) else {}


def _arguments(group: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for name in ("weights", "input_activations", "output_activations"):
        yield arguments_of(group, name)


def _compressed_features(
    stated: Mapping[str, Any], groups: tuple[Mapping[str, Any], ...]
) -> Iterator[str]:
    formats = {str(group.get("format") or stated.get("format")) for group in groups}
    if len(formats) > 1:
        yield "mixed-precision"
    if not groups and stated.get("kv_cache_scheme"):
        yield "cache-scales-alone"
    sparsity = stated.get("sparsity_config")
    if isinstance(sparsity, Mapping) and sparsity.get("targets"):
        yield "sparsity"
    for group in groups:
        weights = arguments_of(group, "weights")
        if weights.get("actorder") in ("group", "dynamic"):
            yield "activation-order"
        if arguments_of(group, "output_activations"):
            yield "output-activations"
        elif feature := _feature(weights, arguments_of(group, "input_activations")):
            packed = (group.get("format") or stated.get("format")) == "pack-quantized"
            yield feature if packed or feature != "w4a8-fp8" else "w4a8-fp8-unpacked"


def _is_by_kind(group: Mapping[str, Any]) -> bool:
    targets = group.get("targets")
    names = [one for one in targets if isinstance(one, str)] if isinstance(targets, list) else []
    return any(name.startswith("re:") or "." not in name for name in names)


def _feature(weights: Mapping[str, Any], inputs: Mapping[str, Any]) -> str:
    """Return the kernels that a group needs and not every version has; "" if none."""
    bits, kind = weights.get("num_bits"), weights.get("type")
    strategy, size = weights.get("strategy"), weights.get("group_size")
    if kind == "float" and bits == 4:
        return "nvfp4" if strategy == "tensor_group" else "mxfp4"
    if kind == "float" and bits == 6:
        return "mxfp6"
    if kind == "float" and bits == 8 and strategy == "group" and size == 32:
        return "mxfp8"
    if kind == "int" and inputs and (bits, inputs.get("type")) != (8, "int"):
        if bits != 4:
            return "wnam-int"
        if inputs.get("type") == "float":
            return "w4a8-fp8"
        return "w4a8-int" if inputs.get("num_bits") == 8 else "wnam-int"
    return ""


def _orders_groups(stated: Mapping[str, Any]) -> bool:
    """Whether GPTQ ordered its groups by activation; without effect on a single group."""
    return stated.get("desc_act") is True and stated.get("group_size") != -1


def _shows_quantized_head(tensor: TensorInfo) -> bool:
    _, found, rest = tensor.name.rpartition(HEAD)
    if not found or ("." in rest and not rest.startswith(("weight.", "weight_"))):
        return False
    name = f"{HEAD}{rest}"
    return name not in PLAIN_HEAD or (rest == "weight" and tensor.dtype not in FLOATS)


def _declares_head(method: str, stated: Mapping[str, Any]) -> bool:
    """Whether the configuration states a quantized head to engines that default to a plain one."""
    if method in ("awq", "gptq"):
        return stated.get("lm_head") is True
    if method == "auto-round":
        layers = stated.get("extra_config")
        return isinstance(layers, Mapping) and any(HEAD[:-1] in str(name) for name in layers)
    return True

"""Checkpoints that arrive quantized, one of each writer, as headers: a tiny Llama, packed."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from packager.core.model import ModelFiles, TensorInfo
from tests.support.doubles.models import safetensors_bytes, write_tokenizer
from tests.support.headers import AWQ_G128, TINY, model_of, tensor

EMPTY: Mapping[str, bytes] = MappingProxyType({})
Headers = dict[str, tuple[str, tuple[int, ...]]]
Pack = Callable[[str, int, int], Headers]  # module, outputs, inputs

INPUTS_8 = {"num_bits": 8, "type": "float", "strategy": "token", "dynamic": True, "symmetric": True}
STATIC_8 = {**INPUTS_8, "strategy": "tensor", "dynamic": False}


def arguments(bits: int, kind: str, strategy: str, **more: Any) -> dict[str, Any]:
    """Spell how compressed-tensors quantized weights."""
    stated = {"num_bits": bits, "type": kind, "strategy": strategy, "symmetric": True}
    return stated | {"dynamic": False, "group_size": None} | more


def compressed(layout: str, weights: Any, inputs: Any = None, **more: Any) -> dict[str, Any]:
    """Spell quantization_config as llm-compressor does."""
    group = {"targets": ["Linear"], "weights": weights, "input_activations": inputs}
    stated = {"quant_method": "compressed-tensors", "format": layout, "ignore": ["lm_head"]}
    return stated | {"config_groups": {"group_0": group}, "version": "0.12.2"} | more


def awq(module: str, outputs: int, inputs: int) -> Headers:
    return {
        f"{module}.qweight": ("I32", (inputs, outputs // 8)),
        f"{module}.qzeros": ("I32", (inputs // 128, outputs // 8)),
        f"{module}.scales": ("F16", (inputs // 128, outputs)),
    }


def gptq(module: str, outputs: int, inputs: int) -> Headers:
    return {
        f"{module}.qweight": ("I32", (inputs // 8, outputs)),
        f"{module}.qzeros": ("I32", (inputs // 128, outputs // 8)),
        f"{module}.scales": ("F16", (inputs // 128, outputs)),
        f"{module}.g_idx": ("I32", (inputs,)),
    }


def packed_int4(module: str, outputs: int, inputs: int) -> Headers:
    return {
        f"{module}.weight_packed": ("I32", (outputs, inputs // 8)),
        f"{module}.weight_scale": ("BF16", (outputs, inputs // 128)),
        f"{module}.weight_shape": ("I64", (2,)),
    }


def packed_int4_zeros(module: str, outputs: int, inputs: int) -> Headers:
    zeros = {f"{module}.weight_zero_point": ("I32", (outputs // 8, inputs // 128))}
    return packed_int4(module, outputs, inputs) | zeros


def fp8_channel(module: str, outputs: int, inputs: int) -> Headers:
    return {
        f"{module}.weight": ("F8_E4M3", (outputs, inputs)),
        f"{module}.weight_scale": ("BF16", (outputs, 1)),
    }


def fp8_static(module: str, outputs: int, inputs: int) -> Headers:
    return {
        f"{module}.weight": ("F8_E4M3", (outputs, inputs)),
        f"{module}.weight_scale": ("BF16", (1,)),
        f"{module}.input_scale": ("BF16", (1,)),
    }


def blocks(scale: str) -> Pack:
    def pack(module: str, outputs: int, inputs: int) -> Headers:
        shape = (math.ceil(outputs / 128), math.ceil(inputs / 128))
        return {
            f"{module}.weight": ("F8_E4M3", (outputs, inputs)),
            f"{module}.{scale}": ("F32", shape),
        }

    return pack


def int8(module: str, outputs: int, inputs: int) -> Headers:
    return {
        f"{module}.weight": ("I8", (outputs, inputs)),
        f"{module}.weight_scale": ("BF16", (outputs, 1)),
    }


def nvfp4(module: str, outputs: int, inputs: int) -> Headers:
    return {
        f"{module}.weight_packed": ("U8", (outputs, inputs // 2)),
        f"{module}.weight_scale": ("F8_E4M3", (outputs, inputs // 16)),
        f"{module}.weight_global_scale": ("F32", (1,)),
        f"{module}.input_global_scale": ("F32", (1,)),
    }


def mxfp4(module: str, outputs: int, inputs: int) -> Headers:
    return {
        f"{module}.weight_packed": ("U8", (outputs, inputs // 2)),
        f"{module}.weight_scale": ("U8", (outputs, inputs // 32)),
    }


def mxfp8(module: str, outputs: int, inputs: int) -> Headers:
    return {
        f"{module}.weight": ("F8_E4M3", (outputs, inputs)),
        f"{module}.weight_scale": ("U8", (outputs, inputs // 32)),
    }


def modelopt_fp8(module: str, outputs: int, inputs: int) -> Headers:
    return {
        f"{module}.weight": ("F8_E4M3", (outputs, inputs)),
        f"{module}.weight_scale": ("F32", ()),
        f"{module}.input_scale": ("F32", ()),
    }


def modelopt_nvfp4(module: str, outputs: int, inputs: int) -> Headers:
    return {
        f"{module}.weight": ("U8", (outputs, inputs // 2)),
        f"{module}.weight_scale": ("F8_E4M3", (outputs, inputs // 16)),
        f"{module}.weight_scale_2": ("F32", ()),
        f"{module}.input_scale": ("F32", ()),
    }


def bitsandbytes_4(module: str, outputs: int, inputs: int) -> Headers:
    at = f"{module}.weight"
    return {
        at: ("U8", (outputs * inputs // 2, 1)),
        f"{at}.absmax": ("U8", (outputs * inputs // 64,)),
        f"{at}.quant_map": ("F32", (16,)),
        f"{at}.nested_absmax": ("F32", (outputs * inputs // 64 // 256,)),
        f"{at}.nested_quant_map": ("F32", (256,)),
        f"{at}.quant_state.bitsandbytes__nf4": ("U8", (82,)),
    }


def bitsandbytes_8(module: str, outputs: int, inputs: int) -> Headers:
    return {
        f"{module}.weight": ("I8", (outputs, inputs)),
        f"{module}.SCB": ("F32", (outputs,)),
        f"{module}.weight_format": ("U8", ()),
    }


def hqq(module: str, outputs: int, inputs: int) -> Headers:
    groups = outputs * inputs // 64
    return {
        f"{module}.W_q": ("U8", (groups // 2, 64)),
        f"{module}.scale": ("F16", (groups, 1)),
        f"{module}.zero": ("F16", (groups, 1)),
    }


@dataclass(frozen=True, slots=True)
class Arriving:
    """A writer's format: what it states, and how it stores a linear layer."""

    id: str
    stated: Mapping[str, Any]
    pack: Pack


GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": True, "desc_act": False}
AUTO_ROUND = {"quant_method": "auto-round", "bits": 4, "group_size": 128, "sym": True}
DEEPSEEK = {
    "quant_method": "fp8",
    "fmt": "e4m3",
    "activation_scheme": "dynamic",
    "weight_block_size": [128, 128],
}
INT_4 = arguments(4, "int", "group", group_size=128)
QUARK = {
    "quant_method": "quark",
    "exclude": ["lm_head"],
    "global_quant_config": {
        "weight": {"dtype": "fp8_e4m3", "qscheme": "per_tensor", "is_dynamic": False},
        "input_tensors": {"dtype": "fp8_e4m3", "qscheme": "per_tensor", "is_dynamic": False},
    },
}
FORMATS = (
    Arriving("awq", AWQ_G128, awq),
    Arriving("gptq", GPTQ, gptq),
    Arriving("ct-w4a16", compressed("pack-quantized", INT_4), packed_int4),
    Arriving(
        "ct-w4a16-asym",
        compressed("pack-quantized", INT_4 | {"symmetric": False}),
        packed_int4_zeros,
    ),
    Arriving(
        "ct-fp8-dynamic",
        compressed("float-quantized", arguments(8, "float", "channel"), INPUTS_8),
        fp8_channel,
    ),
    Arriving(
        "ct-fp8-static",
        compressed("float-quantized", arguments(8, "float", "tensor"), STATIC_8),
        fp8_static,
    ),
    Arriving(
        "ct-fp8-block",
        compressed(
            "float-quantized",
            arguments(8, "float", "block", block_structure=[128, 128]),
            INPUTS_8 | {"strategy": "group", "group_size": 128},
        ),
        blocks("weight_scale"),
    ),
    Arriving(
        "ct-w8a8",
        compressed("int-quantized", arguments(8, "int", "channel"), INPUTS_8 | {"type": "int"}),
        int8,
    ),
    Arriving(
        "ct-nvfp4",
        compressed(
            "nvfp4-pack-quantized",
            arguments(4, "float", "tensor_group", group_size=16),
            {"num_bits": 4, "type": "float", "strategy": "tensor_group", "dynamic": "local"},
        ),
        nvfp4,
    ),
    Arriving(
        "ct-mxfp4",
        compressed("mxfp4-pack-quantized", arguments(4, "float", "group", group_size=32)),
        mxfp4,
    ),
    Arriving(
        "ct-mxfp8",
        compressed("mxfp8-quantized", arguments(8, "float", "group", group_size=32)),
        mxfp8,
    ),
    Arriving(
        "bitsandbytes-4", {"quant_method": "bitsandbytes", "load_in_4bit": True}, bitsandbytes_4
    ),
    Arriving(
        "bitsandbytes-8", {"quant_method": "bitsandbytes", "load_in_8bit": True}, bitsandbytes_8
    ),
    Arriving("deepseek-fp8", DEEPSEEK, blocks("weight_scale_inv")),
    Arriving("fbgemm-fp8", {"quant_method": "fbgemm_fp8"}, fp8_channel),
    Arriving("modelopt-fp8", {"quant_method": "modelopt", "quant_algo": "FP8"}, modelopt_fp8),
    Arriving("modelopt-nvfp4", {"quant_method": "modelopt", "quant_algo": "NVFP4"}, modelopt_nvfp4),
    Arriving("auto-round", AUTO_ROUND | {"packing_format": "auto_round:auto_gptq"}, gptq),
    Arriving("auto-round-awq", AUTO_ROUND | {"packing_format": "auto_round:auto_awq"}, awq),
    Arriving("quark-fp8", QUARK, fp8_static),
    Arriving("hqq", {"quant_method": "hqq", "quant_config": {}}, hqq),
)
BY_ID = {one.id: one for one in FORMATS}


def arriving(
    form: str | Arriving, config: dict[str, Any] = TINY, *, plain: tuple[str, ...] = (), **more: Any
) -> ModelFiles:
    """Make a model of which all linear layers but those named in `plain` are packed."""
    one = BY_ID[form] if isinstance(form, str) else form
    whole = model_of(config, dtype="BF16")
    tensors: list[TensorInfo] = []
    for info in whole.tensors:
        stem = info.name.removesuffix(".weight")
        if not info.name.endswith("_proj.weight") or stem.endswith(plain or "\0"):
            tensors.append(info)
            continue
        outputs, inputs = info.shape
        headers = one.pack(stem, outputs, inputs)
        tensors += [tensor(name, dtype, shape) for name, (dtype, shape) in headers.items()]
    stated = {**one.stated, **more}
    config = {**config, "quantization_config": stated}
    return replace(whole, config=config, tensors=tuple(tensors))


GPT_OSS = {
    "architectures": ["GptOssForCausalLM"],
    "model_type": "gpt_oss",
    "quantization_config": {
        "quant_method": "mxfp4",
        "modules_to_not_convert": [
            "model.layers.*.self_attn",
            "model.layers.*.mlp.router",
            "model.embed_tokens",
            "lm_head",
        ],
    },
}


def gpt_oss() -> ModelFiles:
    """Make GPT-OSS with experts in MXFP4: blocks of 32 inputs, and a scale for each."""
    whole = model_of(TINY)
    experts: Headers = {}
    for layer in range(TINY["num_hidden_layers"]):
        at = f"model.layers.{layer}.mlp.experts"
        experts |= {
            f"{at}.gate_up_proj_blocks": ("U8", (4, 1536, 8, 16)),
            f"{at}.gate_up_proj_scales": ("U8", (4, 1536, 8)),
            f"{at}.gate_up_proj_bias": ("BF16", (4, 1536)),
            f"{at}.down_proj_blocks": ("U8", (4, 256, 24, 16)),
            f"{at}.down_proj_scales": ("U8", (4, 256, 24)),
            f"{at}.down_proj_bias": ("BF16", (4, 256)),
        }
    kept = [info for info in whole.tensors if ".mlp." not in info.name]
    packed = [tensor(name, dtype, shape) for name, (dtype, shape) in experts.items()]
    return replace(whole, config=TINY | GPT_OSS, tensors=(*kept, *packed))


ONE = {
    "F32": struct.pack("<f", 1.0),
    "F16": struct.pack("<e", 1.0),
    "BF16": b"\x80\x3f",
    "F8_E4M3": b"\x38",
    "U8": b"\x7f",
    "I8": b"\x01",
    "I32": b"\x01\0\0\0",
    "I64": b"\x01" + bytes(7),
}


def save(model: ModelFiles, directory: Path, values: Mapping[str, bytes] = EMPTY) -> Path:
    """Write a model's files, of ones; `values` gives other bytes to tensors by name."""
    directory.mkdir(parents=True, exist_ok=True)
    header: dict[str, object] = {}
    data = bytearray()
    for info in model.tensors:
        own = values.get(info.name, ONE[info.dtype] * math.prod(info.shape))
        assert len(own) == info.size, info
        header[info.name] = {
            "dtype": info.dtype,
            "shape": list(info.shape),
            "data_offsets": [len(data), len(data) + len(own)],
        }
        data += own
    (directory / "model.safetensors").write_bytes(safetensors_bytes(header, bytes(data)))
    (directory / "config.json").write_text(json.dumps(model.config))
    write_tokenizer(directory)
    return directory

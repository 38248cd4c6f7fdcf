"""Llama checkpoints with random weights, from 1 to 8 billion parameters, and a tiny one.

The weights are normal variables of a standard deviation of 0.02 in bfloat16, as untrained models
have; norms are 1.  The same size and seed give the same bytes.  Standard library only.
"""

from __future__ import annotations

import json
import random
import shutil
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

TINY_LLAMA = Path(__file__).resolve().parents[2] / "examples" / "tiny-llama"
VOCABULARY = 2048  # of tiny-llama, whose tokenizer it has
BLOCK = 1 << 24
SIZES: dict[str, dict[str, int]] = {
    "tiny": {"hidden": 128, "inner": 256, "layers": 4, "heads": 2, "kv_heads": 2},
    "1b": {"hidden": 2048, "inner": 8192, "layers": 16, "heads": 32, "kv_heads": 8},
    "3b": {"hidden": 3072, "inner": 8192, "layers": 28, "heads": 24, "kv_heads": 8},
    "8b": {"hidden": 4096, "inner": 14336, "layers": 32, "heads": 32, "kv_heads": 8},
}


def write_model(place: Path, size: str, seed: int = 0) -> dict[str, Any]:
    """Write a checkpoint with one file for each layer; return its parameters and bytes."""
    shape = SIZES[size]
    place.mkdir(parents=True, exist_ok=True)
    numbers = random.Random(seed)
    files = _files(shape)
    weight_map = {}
    total = 0
    for index, tensors in enumerate(files):
        name = f"model-{index + 1:05}-of-{len(files):05}.safetensors"
        weight_map |= dict.fromkeys(tensors, name)
        total += _write_file(place / name, tensors, numbers)
    _write_json(
        place / "model.safetensors.index.json",
        {"metadata": {"total_size": total}, "weight_map": weight_map},
    )
    _write_json(place / "config.json", _config(shape))
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(TINY_LLAMA / name, place / name)
    return {"size": size, "parameters": total // 2, "bytes": total, **shape}


def _files(shape: dict[str, int]) -> list[dict[str, tuple[int, ...]]]:
    hidden, inner = shape["hidden"], shape["inner"]
    head = hidden // shape["heads"]
    keys = head * shape["kv_heads"]
    files: list[dict[str, tuple[int, ...]]] = [
        {
            "model.embed_tokens.weight": (VOCABULARY, hidden),
            "model.norm.weight": (hidden,),
            "lm_head.weight": (VOCABULARY, hidden),
        }
    ]
    for layer in range(shape["layers"]):
        tensors: dict[str, tuple[int, ...]] = {
            "input_layernorm": (hidden,),
            "post_attention_layernorm": (hidden,),
            "self_attn.q_proj": (hidden, hidden),
            "self_attn.k_proj": (keys, hidden),
            "self_attn.v_proj": (keys, hidden),
            "self_attn.o_proj": (hidden, hidden),
            "mlp.gate_proj": (inner, hidden),
            "mlp.up_proj": (inner, hidden),
            "mlp.down_proj": (hidden, inner),
        }
        files.append({f"model.layers.{layer}.{name}.weight": tensors[name] for name in tensors})
    return files


def _write_file(path: Path, tensors: dict[str, tuple[int, ...]], numbers: random.Random) -> int:
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    start = 0
    for name, shape in tensors.items():
        size = 2 * _count(shape)
        header[name] = {
            "dtype": "BF16",
            "shape": list(shape),
            "data_offsets": [start, start + size],
        }
        start += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for shape in tensors.values():
            for piece in _values(shape, numbers):
                file.write(piece)
    return start


def _values(shape: tuple[int, ...], numbers: random.Random) -> Iterator[bytes]:
    """Yield a tensor in pieces: ones for a norm, and normal variables for a matrix."""
    count = _count(shape)
    if len(shape) == 1:
        yield ONE * count
        return
    for start in range(0, count, BLOCK):
        size = min(BLOCK, count - start)
        piece = bytearray(2 * size)
        piece[0::2] = numbers.randbytes(size)
        piece[1::2] = numbers.randbytes(size).translate(HIGH_BYTES)
        yield bytes(piece)


def _high_bytes() -> bytes:
    """Map a random byte to the sign and the upper exponent bits of a normal variable."""
    from statistics import NormalDist

    normal = NormalDist(0, 0.02)
    table = []
    for value in range(256):
        magnitude = normal.inv_cdf(0.5 + ((value & 0x7F) + 0.5) / 256)
        table.append((value & 0x80) | (struct.pack(">f", magnitude)[0] & 0x7F))
    return bytes(table)


HIGH_BYTES = _high_bytes()
ONE = b"\x80\x3f"  # 1.0 in bfloat16


def _count(shape: tuple[int, ...]) -> int:
    return shape[0] if len(shape) == 1 else shape[0] * shape[1]


def _config(shape: dict[str, int]) -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "torch_dtype": "bfloat16",
        "hidden_size": shape["hidden"],
        "intermediate_size": shape["inner"],
        "num_hidden_layers": shape["layers"],
        "num_attention_heads": shape["heads"],
        "num_key_value_heads": shape["kv_heads"],
        "head_dim": shape["hidden"] // shape["heads"],
        "hidden_act": "silu",
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "vocab_size": VOCABULARY,
        "max_position_embeddings": 2048,
        "tie_word_embeddings": False,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }


def _write_json(path: Path, document: object) -> None:
    path.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")

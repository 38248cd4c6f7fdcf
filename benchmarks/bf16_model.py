"""A model directory of any size whose weights look like trained bf16 to a compressor.

Low bytes are random (mantissas), high bytes follow a narrow distribution
(sign and exponent), so gzip gets about a fifth off, as with real weights.
Nothing repeats, so no peer profits from deduplication.
"""

from __future__ import annotations

import json
import math
import os
import struct
import sys
from pathlib import Path

BLOCK = 64 * 1024 * 1024
_ELEMENT = 2
_COLUMNS = 4096


def write_model(
    directory: Path, *, total_bytes: int, shards: int, sparse: bool = False
) -> list[Path]:
    """Write a Llama-shaped model of about `total_bytes` in `shards` files; give the shards.

    With `sparse` the weights are holes: zeros that take no disk.
    """
    directory.mkdir(parents=True)
    rows = total_bytes // shards // _COLUMNS // _ELEMENT
    paths, weight_map = [], {}
    for number in range(shards):
        name = f"model-{number + 1:05}-of-{shards:05}.safetensors"
        tensor = f"model.layers.{number}.mlp.up_proj.weight"
        weight_map[tensor] = name
        paths.append(directory / name)
        _write_shard(directory / name, tensor, rows, sparse=sparse)
    size = rows * _COLUMNS * _ELEMENT * shards
    index = {"metadata": {"total_size": size}, "weight_map": weight_map}
    _write_json(directory / "model.safetensors.index.json", index)
    _write_json(directory / "config.json", _config(shards))
    _write_json(directory / "tokenizer.json", {"version": "1.0", "model": {"type": "BPE"}})
    _write_json(directory / "tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast"})
    return paths


def write_servable_model(directory: Path, *, total_bytes: int, like: Path) -> None:
    """Write a whole Llama of about `total_bytes` that engines load, with the tokenizer of `like`.

    Its layers are 2048 wide, 18 at a gigabyte and a half; one file holds 1 GB.
    """
    directory.mkdir(parents=True)
    for path in sorted(like.glob("*.json")):
        if not path.name.endswith(".safetensors.index.json"):
            (directory / path.name).write_bytes(path.read_bytes())
    config = json.loads((like / "config.json").read_text())
    config |= _SERVABLE
    outside = {
        "model.embed_tokens.weight": (config["vocab_size"], _WIDE),
        "lm_head.weight": (config["vocab_size"], _WIDE),
        "model.norm.weight": (_WIDE,),
    }
    each = _ELEMENT * sum(map(math.prod, _layer_shapes(0).values()))
    left = total_bytes - _ELEMENT * sum(map(math.prod, outside.values()))
    config["num_hidden_layers"] = max(1, round(left / each))
    _write_json(directory / "config.json", config)
    shapes = dict(outside)
    for number in range(config["num_hidden_layers"]):
        shapes |= _layer_shapes(number)
    files: list[dict[str, tuple[int, ...]]] = [{}]
    size = 0
    for name, shape in shapes.items():
        if size > _FILE_BYTES:
            files.append({})
            size = 0
        files[-1][name] = shape
        size += _ELEMENT * math.prod(shape)
    weight_map = {}
    for number, tensors in enumerate(files, start=1):
        name = f"model-{number:05}-of-{len(files):05}.safetensors"
        _write_tensors(directory / name, tensors)
        weight_map |= dict.fromkeys(tensors, name)
    total = _ELEMENT * sum(map(math.prod, shapes.values()))
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    _write_json(directory / "model.safetensors.index.json", index)


_WIDE, _INNER, _KEYS = 2048, 5632, 512
_FILE_BYTES = 1_000_000_000
_SERVABLE = {
    "hidden_size": _WIDE,
    "intermediate_size": _INNER,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}


def _layer_shapes(number: int) -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {
        "self_attn.q_proj": (_WIDE, _WIDE),
        "self_attn.k_proj": (_KEYS, _WIDE),
        "self_attn.v_proj": (_KEYS, _WIDE),
        "self_attn.o_proj": (_WIDE, _WIDE),
        "mlp.gate_proj": (_INNER, _WIDE),
        "mlp.up_proj": (_INNER, _WIDE),
        "mlp.down_proj": (_WIDE, _INNER),
        "input_layernorm": (_WIDE,),
        "post_attention_layernorm": (_WIDE,),
    }
    return {f"model.layers.{number}.{name}.weight": shape for name, shape in shapes.items()}


def _write_tensors(path: Path, tensors: dict[str, tuple[int, ...]]) -> None:
    entries, at = {}, 0
    for name, shape in tensors.items():
        size = _ELEMENT * math.prod(shape)
        entries[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    header = json.dumps(entries).encode()
    header += b" " * (-len(header) % 8)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        for shape in tensors.values():
            size = _ELEMENT * math.prod(shape)
            for start in range(0, size, BLOCK):
                file.write(bf16_like(min(BLOCK, size - start)))


def bf16_like(size: int) -> bytes:
    """Random bf16 values around zero, as bytes (little endian)."""
    block = bytearray(size)
    block[0::2] = os.urandom(size // 2)
    block[1::2] = os.urandom(size // 2).translate(_HIGH_BYTES)
    return bytes(block)


def _high_bytes() -> bytes:
    """Map a uniform byte to sign and upper exponent bits of a normal variable, sigma 0.02."""
    table = []
    for value in range(256):
        sign, uniform = value & 0x80, ((value & 0x7F) + 0.5) / 128
        magnitude = 0.02 * math.sqrt(2) * _inverse_erf(uniform)
        table.append(sign | (struct.pack(">f", magnitude)[0] & 0x7F))
    return bytes(table)


def _inverse_erf(value: float) -> float:
    low, high = 0.0, 6.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if math.erf(middle) < value else (low, middle)
    return (low + high) / 2


_HIGH_BYTES = _high_bytes()


def change_shard(path: Path) -> None:
    """Give a shard other weights of the same size, in its middle."""
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2)
        file.write(bf16_like(1024 * 1024))


def _write_shard(path: Path, tensor: str, rows: int, *, sparse: bool) -> None:
    size = rows * _COLUMNS * _ELEMENT
    entry = {"dtype": "BF16", "shape": [rows, _COLUMNS], "data_offsets": [0, size]}
    header = json.dumps({tensor: entry}).encode()
    header += b" " * (-len(header) % 8)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        if sparse:
            file.truncate(file.tell() + size)
            return
        for start in range(0, size, BLOCK):
            file.write(bf16_like(min(BLOCK, size - start)))


def _config(layers: int) -> dict[str, object]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "torch_dtype": "bfloat16",
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": layers,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "vocab_size": 32000,
        "max_position_embeddings": 8192,
    }


def _write_json(path: Path, document: object) -> None:
    path.write_text(json.dumps(document, indent=2) + "\n")


if __name__ == "__main__":
    write_model(
        Path(sys.argv[1]),
        total_bytes=int(sys.argv[2]),
        shards=int(sys.argv[3]),
        sparse="sparse" in sys.argv[4:],
    )

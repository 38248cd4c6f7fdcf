"""Tiny model directories, written without any framework.

Equal arguments give equal bytes.  Weights are random, so nothing here can be
compressed or deduplicated by accident.
"""

from __future__ import annotations

import json
import random
import struct
from array import array
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.support.places import DATA

Tensors = Mapping[str, tuple[str, tuple[int, ...]]]  # name → dtype, shape

INDEX_CODES = {"I64": "q", "I32": "i", "BOOL": "B", "U8": "B"}  # of `array`

BYTES_PER_ELEMENT = {
    "BF16": 2,
    "F16": 2,
    "F32": 4,
    "F8_E4M3": 1,
    "I8": 1,
    "U8": 1,
    "I32": 4,
    "I64": 8,
    "BOOL": 1,
}


def write_model(
    directory: Path,
    *,
    shards: int = 3,
    layers: int = 2,
    hidden_size: int = 64,
    intermediate_size: int = 128,
    heads: int = 0,
    kv_heads: int = 0,
    vocab_size: int = 256,
    dtype: str = "BF16",
    seed: int = 0,
    config: Mapping[str, Any] | None = None,
) -> Path:
    """Write a complete llama model and return its directory.

    One shard gives `model.safetensors`; more give numbered shards and an
    index.  `config` replaces or adds keys of config.json.  Unless stated there are four heads,
    fewer where they would be of less than 32: processors compute no smaller ones.
    """
    heads = heads or max(1, min(4, hidden_size // 32))
    kv_heads = kv_heads or max(1, heads // 2)
    directory.mkdir(parents=True, exist_ok=True)
    spelled = {"BF16": "bfloat16", "F16": "float16", "F32": "float32"}.get(dtype, "bfloat16")
    write_json(
        directory / "config.json",
        {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "torch_dtype": spelled,
            "hidden_size": hidden_size,
            "intermediate_size": intermediate_size,
            "num_hidden_layers": layers,
            "num_attention_heads": heads,
            "num_key_value_heads": kv_heads,
            "vocab_size": vocab_size,
            "max_position_embeddings": 512,
            "rms_norm_eps": 1e-05,
            "hidden_act": "silu",
            "tie_word_embeddings": False,
            **(config or {}),
        },
    )
    write_tokenizer(directory)
    tensors = llama_tensors(
        layers=layers,
        hidden_size=hidden_size,
        intermediate_size=intermediate_size,
        kv_size=hidden_size * kv_heads // heads,
        vocab_size=vocab_size,
        dtype=dtype,
    )
    write_weights(directory, tensors, shards=shards, seed=seed)
    return directory


def llama_tensors(
    *,
    layers: int,
    hidden_size: int,
    intermediate_size: int,
    kv_size: int,
    vocab_size: int,
    dtype: str = "BF16",
) -> dict[str, tuple[str, tuple[int, ...]]]:
    """List a llama's tensors in the order a checkpoint has them."""
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (vocab_size, hidden_size)}
    for layer in range(layers):
        prefix = f"model.layers.{layer}"
        shapes |= {
            f"{prefix}.input_layernorm.weight": (hidden_size,),
            f"{prefix}.self_attn.q_proj.weight": (hidden_size, hidden_size),
            f"{prefix}.self_attn.k_proj.weight": (kv_size, hidden_size),
            f"{prefix}.self_attn.v_proj.weight": (kv_size, hidden_size),
            f"{prefix}.self_attn.o_proj.weight": (hidden_size, hidden_size),
            f"{prefix}.post_attention_layernorm.weight": (hidden_size,),
            f"{prefix}.mlp.gate_proj.weight": (intermediate_size, hidden_size),
            f"{prefix}.mlp.up_proj.weight": (intermediate_size, hidden_size),
            f"{prefix}.mlp.down_proj.weight": (hidden_size, intermediate_size),
        }
    shapes |= {"model.norm.weight": (hidden_size,), "lm_head.weight": (vocab_size, hidden_size)}
    return {name: (dtype, shape) for name, shape in shapes.items()}


def write_weights(directory: Path, tensors: Tensors, *, shards: int, seed: int = 0) -> None:
    """Spread the tensors over shards in order, about evenly by number."""
    names = list(tensors)
    if shards == 1:
        write_safetensors(directory / "model.safetensors", tensors, seed=seed)
        return
    weight_map: dict[str, str] = {}
    total = 0
    for number in range(shards):
        share = names[number * len(names) // shards : (number + 1) * len(names) // shards]
        file = f"model-{number + 1:05}-of-{shards:05}.safetensors"
        total += write_safetensors(
            directory / file, {name: tensors[name] for name in share}, seed=seed + number
        )
        weight_map |= dict.fromkeys(share, file)
    write_json(
        directory / "model.safetensors.index.json",
        {"metadata": {"total_size": total}, "weight_map": weight_map},
    )


def write_safetensors(path: Path, tensors: Tensors, *, seed: int = 0) -> int:
    """Write one safetensors file of random bytes and return the bytes of its tensors."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, (dtype, shape) in tensors.items():
        size = BYTES_PER_ELEMENT[dtype]
        for dimension in shape:
            size *= dimension
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [end, end + size]}
        end += size
    data = bytearray(random.Random(seed).randbytes(end))
    for name, values in token_maps(tensors).items():
        begin, after = header[name]["data_offsets"]
        data[begin:after] = array(INDEX_CODES[tensors[name][0]], values).tobytes()
    path.write_bytes(safetensors_bytes(header, bytes(data)))
    return end


def token_maps(tensors: Tensors) -> dict[str, list[int]]:
    """Make the maps of a head's own vocabulary: three of four of the model's tokens, or all."""
    own = tensors["d2t"][1][0] if "d2t" in tensors else 0
    models = tensors["t2d"][1][0] if "t2d" in tensors else 2 * own
    d2t = [at // 3 if 4 * own <= 3 * models else 0 for at in range(own)]
    kept = {at + offset for at, offset in enumerate(d2t)}
    maps = {"d2t": d2t, "t2d": [int(at in kept) for at in range(models)]}
    return {name: values for name, values in maps.items() if name in tensors}


def safetensors_bytes(header: Mapping[str, object], data: bytes = b"") -> bytes:
    """Frame a header, right or wrong, as a safetensors file does."""
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


def write_tokenizer(directory: Path) -> None:
    """Write the smallest tokenizer that the tokenizers library loads."""
    for path in (DATA / "models" / "smallest_tokenizer").iterdir():
        (directory / path.name).write_bytes(path.read_bytes())


def write_json(path: Path, value: object) -> None:
    """Write JSON the way model repositories do."""
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")


def fill_with_numbers(place: Path) -> None:
    """Write finite numbers in place of a model's random bytes."""
    import numpy as np

    random = np.random.default_rng(3)
    for file in place.glob("*.safetensors"):
        data = bytearray(file.read_bytes())
        start = 8 + int.from_bytes(data[:8], "little")
        count = (len(data) - start) // 2
        numbers = (random.standard_normal(count) * 0.02).astype(np.float32).view(np.uint32)
        data[start:] = (numbers >> 16).astype("<u2").tobytes()
        file.write_bytes(data)

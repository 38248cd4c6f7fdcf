"""LoRA adapters as PEFT writes them, made without it: files of a few kilobytes."""

from __future__ import annotations

import json
import math
import random
import struct
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from packager.core.adapters import Adapter
from packager.core.references import DirectoryReference
from packager.models.adapters.read import adapter_of
from packager.models.local import LocalSource

Sides = tuple[int, int]  # outputs and inputs
Shapes = Mapping[str, tuple[int, ...]]

# Of examples/tiny-llama.
TINY: Mapping[str, Sides] = {
    "self_attn.q_proj": (256, 256),
    "self_attn.k_proj": (128, 256),
    "self_attn.v_proj": (128, 256),
    "self_attn.o_proj": (256, 256),
    "mlp.gate_proj": (768, 256),
    "mlp.up_proj": (768, 256),
    "mlp.down_proj": (256, 768),
}
TINY_LAYERS = 4
PREFIX = "base_model.model."

_PACK: Mapping[str, Callable[[float], bytes]] = {
    "BF16": lambda value: struct.pack("<f", value)[2:],
    "F16": partial(struct.pack, "<e"),
    "F32": partial(struct.pack, "<f"),
    "U8": lambda _: bytes(1),
}


def tiny_modules(*leaves: str) -> dict[str, Sides]:
    """Return the modules of the tiny model with these last names, of every layer."""
    return {
        f"model.layers.{layer}.{name}": sides
        for layer in range(TINY_LAYERS)
        for name, sides in TINY.items()
        if name.rpartition(".")[2] in leaves
    }


def peft_config(**changes: Any) -> dict[str, Any]:
    """Return a configuration of LoRA as PEFT writes it; None removes a field."""
    config: dict[str, Any] = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": "examples/tiny-llama",
        "r": 8,
        "lora_alpha": 16,
        "lora_dropout": 0.05,
        "bias": "none",
        "target_modules": ["q_proj", "v_proj"],
        "rank_pattern": {},
        "alpha_pattern": {},
        "use_rslora": False,
        "use_dora": False,
        "modules_to_save": None,
        "init_lora_weights": True,
        **changes,
    }
    return {name: value for name, value in config.items() if name not in changes or value != "-"}


def lora_shapes(modules: Mapping[str, Sides], ranks: Mapping[str, int] | int) -> dict[str, Sides]:
    """Return the tensors of pairs for these modules."""
    shapes: dict[str, Sides] = {}
    for path, (outputs, inputs) in modules.items():
        rank = ranks if isinstance(ranks, int) else ranks[path]
        shapes[f"{PREFIX}{path}.lora_A.weight"] = (rank, inputs)
        shapes[f"{PREFIX}{path}.lora_B.weight"] = (outputs, rank)
    return shapes


def safetensors_file(
    shapes: Shapes, dtype: str = "BF16", *, seed: int = 0, size: float = 1.0
) -> bytes:
    """Return a file of random values around 0; `size` is their spread times the root of rows."""
    width = {"BF16": 2, "F16": 2, "F32": 4, "U8": 1}[dtype]
    made = random.Random(seed)
    header: dict[str, Any] = {}
    data = bytearray()
    for name, shape in shapes.items():
        count = math.prod(shape)
        spread = size / math.sqrt(max(shape, default=1))
        values = [made.gauss(0, spread) for _ in range(count)]
        raw = b"".join(map(_PACK[dtype], values))
        header[name] = {
            "dtype": dtype,
            "shape": list(shape),
            "data_offsets": [len(data), len(data) + count * width],
        }
        data += raw
    text = json.dumps(header, separators=(",", ":")).encode()
    return struct.pack("<Q", len(text)) + text + bytes(data)


def write_adapter(
    place: Path,
    modules: Mapping[str, Sides] | None = None,
    *,
    dtype: str = "BF16",
    seed: int = 0,
    size: float = 1.0,
    extra: Shapes | None = None,
    ranks: Mapping[str, int] | None = None,
    **config: Any,
) -> Path:
    """Write an adapter of q and v of the tiny model, or of `modules`; return its directory."""
    place.mkdir(parents=True, exist_ok=True)
    stated = peft_config(**config)
    adapted = tiny_modules("q_proj", "v_proj") if modules is None else modules
    shapes: dict[str, tuple[int, ...]] = dict(lora_shapes(adapted, ranks or int(stated["r"])))
    weights = safetensors_file({**shapes, **(extra or {})}, dtype, seed=seed, size=size)
    (place / "adapter_config.json").write_text(json.dumps(stated, indent=2))
    (place / "adapter_model.safetensors").write_bytes(weights)
    return place


def read_adapter(place: Path, name: str = "sql") -> Adapter:
    """Read the adapter of a directory as a build does."""
    source = LocalSource(is_adapter=True)
    return adapter_of(name, source.facts(DirectoryReference.at(place)))

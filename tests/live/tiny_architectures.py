"""Random checkpoints of many architectures, a few layers each: run in the tool environment.

    python tiny_architectures.py OUTPUT [--wide] NAME ...

`corpus/architectures.toml` has their sizes.  Models that see have a processor beside them, whose
tokens are those that tiny-llama has for roles.

Hidden size 64, or 128 where they are wide.  In both groups of 32 divide everything; the tokenizer
is tiny-llama's.  Norms and some columns are far from 1, as in real checkpoints: with flat ones,
folding a scale into the wrong norm would hardly show.
"""

from __future__ import annotations

import json
import shutil
import sys
import tomllib
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors.torch import load_file, save_file

TOKENIZER = Path(__file__).resolve().parents[2] / "examples/tiny-llama"
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json")
CORPUS = tomllib.loads((Path(__file__).parent / "corpus/architectures.toml").read_text())
MODELS: dict[str, dict[str, Any]] = CORPUS["models"]


def make(name: str, output: Path, *, wide: bool = False) -> Path:
    """Write the checkpoint of `name` below `output`, in bfloat16."""
    row = MODELS[name]
    model_class, config_class = row["classes"]
    sizes = _resolved(row.get("sizes", {}))
    if "text_config" not in sizes:
        left_out = sizes.pop("without", ())
        base = {key: one for key, one in CORPUS["parts"]["base"].items() if key not in left_out}
        sizes = base | sizes
    config = getattr(transformers, config_class)(**(_widened(sizes) if wide else sizes))
    torch.manual_seed(len(name))
    model = getattr(transformers, model_class)(config).to(torch.bfloat16)
    _roughen(model)
    place = output / name
    model.save_pretrained(place)
    if "published_tower" in row:
        _rename(place, "vision_tower.", row["published_tower"])
    if getattr(config, "num_nextn_predict_layers", 0):
        _add_draft_layer(place, config.num_hidden_layers)
    for file in TOKENIZER_FILES:
        shutil.copy(TOKENIZER / file, place)
    if "processor" in row:
        _write_json(place / "processor_config.json", _resolved(row["processor"]))
        told = json.loads((place / "tokenizer_config.json").read_text())
        seen = CORPUS["seen"]
        _write_json(place / "tokenizer_config.json", {**told, "extra_special_tokens": seen, **seen})
    if name == "gemma3-vl":
        _have_newlines(place / "tokenizer.json")
    return place


def _resolved(table: dict[str, Any]) -> dict[str, Any]:
    """Return a table with the parts that it names before its own values."""
    made: dict[str, Any] = {}
    for part in table.get("with", ()):
        made |= _resolved(CORPUS["parts"][part])
    for key, value in table.items():
        if key != "with":
            made[key] = _resolved(value) if isinstance(value, dict) else value
    return made


def _have_newlines(file: Path) -> None:
    """Have up to four newlines be tokens, as Gemma's, in place of the last merged ones."""
    tokenizer = json.loads(file.read_text(encoding="utf-8"))
    model = tokenizer["model"]
    del model["merges"][-4:]
    for number, word in enumerate(sorted(model["vocab"], key=model["vocab"].__getitem__)[-4:], 1):
        newlines = "\n" * number
        model["vocab"][newlines] = model["vocab"].pop(word)
        row = {**tokenizer["added_tokens"][-1], "special": False}
        tokenizer["added_tokens"].append(
            {**row, "id": model["vocab"][newlines], "content": newlines}
        )
    _write_json(file, tokenizer)


def _write_json(place: Path, value: dict[str, Any]) -> None:
    place.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")


def _widened(sizes: dict[str, Any]) -> dict[str, Any]:
    """Return the sizes of a wide model, those of its parts too."""
    made = {key: _widened(one) if isinstance(one, dict) else one for key, one in sizes.items()}
    for key, narrow, wide in CORPUS["wide"]:
        if made.get(key) == narrow:
            made[key] = wide
    return made


def _rename(place: Path, start: str, published: str) -> None:
    file = place / "model.safetensors"
    tensors = {
        published + name.removeprefix(start) if name.startswith(start) else name: tensor
        for name, tensor in load_file(file).items()
    }
    save_file(tensors, file, metadata={"format": "pt"})


def _add_draft_layer(place: Path, layers: int) -> None:
    """Add the layer that only drafting loads: a copy of the last one and what joins it to them."""
    file = place / "model.safetensors"
    tensors = load_file(file)
    last, added = f"model.layers.{layers - 1}.", f"model.layers.{layers}."
    copies = {
        name.replace(last, added): tensor.clone()
        for name, tensor in tensors.items()
        if name.startswith(last)
    }
    norm = tensors["model.norm.weight"]
    copies[f"{added}eh_proj.weight"] = torch.randn(len(norm), 2 * len(norm)).to(norm.dtype)
    for name in ("enorm", "hnorm", "shared_head.norm"):
        copies[f"{added}{name}.weight"] = norm.clone()
    save_file(tensors | copies, file, metadata={"format": "pt"})


@torch.no_grad()
def _roughen(model: Any) -> None:
    """Spread norms' weights around their neutral value, and give two channels outliers."""
    for name, parameter in model.named_parameters():
        if name.endswith(("q_norm.weight", "k_norm.weight")):
            continue  # sharp attention makes every error large
        if parameter.ndim == 1 and name.endswith("weight"):
            factors = torch.exp(torch.randn_like(parameter, dtype=torch.float32) * 0.5)
            factors[:2] *= 6
            gain = parameter.float() if parameter.float().mean() > 0.5 else 1 + parameter.float()
            rough = gain * factors
            offset = 0.0 if parameter.float().mean() > 0.5 else 1.0
            parameter.copy_((rough - offset).to(parameter.dtype))
        elif parameter.ndim == 1 and name.endswith("bias"):
            parameter.copy_(torch.randn_like(parameter) * 0.05)


def main() -> None:
    """Write those that are named."""
    output, names = Path(sys.argv[1]), sys.argv[2:]
    for name in names:
        if name != "--wide":
            make(name, output, wide="--wide" in names)


if __name__ == "__main__":
    main()

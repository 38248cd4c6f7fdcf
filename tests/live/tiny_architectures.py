"""Random checkpoints of many architectures, a few layers each: run in the tool environment.

    python tiny_architectures.py OUTPUT [--wide] NAME[+VARIANT][+DTYPE] ...

`corpus/architectures.toml` has their sizes, and the variants: what is wrong or rare in the numbers
of a source.  DTYPE is `bfloat16` when absent; others have the same numbers, cast.  Models that
see have a processor beside them, whose tokens are those that tiny-llama has for roles.

Hidden size 64, or 128 where they are wide.  In both groups of 32 divide everything; the tokenizer
is tiny-llama's.  Norms and some columns are far from 1, as in real checkpoints: with flat ones,
folding a scale into the wrong norm would hardly show.
"""

from __future__ import annotations

import json
import re
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
VARIANTS: dict[str, dict[str, Any]] = CORPUS["variants"]
DTYPES = ("bfloat16", "float16", "float32")
# Sharp attention makes every error large: these norms stay flat.
FLAT = re.compile(r".*\.(q|k|query|key)_(layer)?norm\.weight")


def make(spelled: str, output: Path, *, wide: bool = False) -> Path:
    """Write a checkpoint below `output`, in a directory that is called as it is spelled."""
    name, *words = spelled.split("+")
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
    for dtype in set(DTYPES).intersection(words):
        model.to(getattr(torch, dtype))
    place = output / spelled
    model.save_pretrained(place)
    if "published_tower" in row:
        _rename(place, "vision_tower.", row["published_tower"])
    if "published_language" in row:
        _rename(place, "language_model.model.model.", row["published_language"])
    if "published_architecture" in row:
        told = json.loads((place / "config.json").read_text())
        told["architectures"] = [row["published_architecture"]]
        _write_json(place / "config.json", told)
    if "published_experts" in row:
        _publish_experts(place, row["published_experts"])
    if getattr(config, "num_nextn_predict_layers", 0):
        _add_draft_layer(place, config.num_hidden_layers)
    for word in words:
        if word not in DTYPES:
            _change(place, VARIANTS[word])
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


def _publish_experts(place: Path, how: str) -> None:
    """Stack the experts of each layer into tensors of three dimensions, or turn theirs."""
    file = place / "model.safetensors"
    tensors = load_file(file)
    if how == "turned":
        for name, tensor in tensors.items():
            if tensor.ndim == 3 and ".experts." in name:
                tensors[name] = tensor.transpose(1, 2).contiguous()
    else:
        paths = {name.partition(".experts.")[0] for name in tensors if ".experts." in name}
        for path in sorted(paths):
            own = [name for name in tensors if name.startswith(f"{path}.experts.")]
            kinds: dict[str, list[torch.Tensor]] = {}
            for name in sorted(own, key=lambda one: int(one.split(".")[-3])):
                kinds.setdefault(name.split(".")[-2], []).append(tensors.pop(name))
            gate, up, down = (
                torch.stack(kinds[kind]) for kind in ("gate_proj", "up_proj", "down_proj")
            )
            tensors[f"{path}.experts.gate_up_proj"] = torch.cat([gate, up], 1)
            tensors[f"{path}.experts.down_proj"] = down
    save_file(tensors, file, metadata={"format": "pt"})


def _change(place: Path, variant: dict[str, Any]) -> None:
    """Change numbers of a checkpoint, and keys of its configuration."""
    file = place / "model.safetensors"
    tensors = load_file(file)
    for change in variant.get("changes", ()):
        names = [name for name in tensors if re.fullmatch(change["tensors"], name)]
        for name in names:
            tensors[name] = _changed(tensors[name], change)
        if not names and not change.get("absent_ok"):
            raise SystemExit(f"no tensor of {place.name} is called {change['tensors']}")
    save_file(tensors, file, metadata={"format": "pt"})
    if "config" in variant:
        config = json.loads((place / "config.json").read_text())
        _write_json(place / "config.json", config | variant["config"])


def _changed(tensor: torch.Tensor, change: dict[str, Any]) -> torch.Tensor:
    """Return a tensor with other values at its rows, or at one row and one column."""
    made = tensor.clone()
    first, last = change.get("rows", (0, len(made)))
    part = made[first:last, change["column"]] if "column" in change else made[first:last]
    if "times" in change:
        part *= change["times"]
    elif change.get("set") == "subnormal":
        part.copy_(part.sign() * torch.finfo(made.dtype).smallest_normal / 4)
    elif "set" in change:
        part.fill_(change["set"])
    return made.to(getattr(torch, change["dtype"])) if "dtype" in change else made


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
        if FLAT.fullmatch(name):
            continue
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

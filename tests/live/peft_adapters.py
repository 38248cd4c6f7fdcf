"""Adapters that PEFT itself makes, merges and computes with: run beside PEFT.

    python peft_adapters.py CASES MODELS OUTPUT

CASES is a JSON list of `name`, `base` (a checkpoint in MODELS) and `config` (arguments of
`LoraConfig`; a table with `class` is one of its parts).  `OUTPUT/NAME` gets the adapter, its
numbers drawn by a seed; `dtype` is the type of its own file.  With `merge` the checkpoint that
`merge_and_unload` leaves is `OUTPUT/NAME.merged`; with `wide`, too, it is summed in float64.  With
`rows` the file `OUTPUT/NAME.rows` has what PEFT adds to each row of the base (`adapter_rows.py`).

A line of JSON each: `failed` has PEFT's words where it makes no such adapter; `is_plain` says
whether the base with all products added answers as PEFT does.
"""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path
from typing import Any

import adapter_rows
import peft
import torch
import transformers
from peft.tuners.lora import config as parts
from peft.tuners.lora.layer import LoraLayer, ParamWrapper
from safetensors.torch import save_file

SPREAD = 0.05  # of the numbers of both matrices
ALIKE = 1e-3  # of the largest logit, in float32
TURNED = ("gpt_oss", "llama4_text")  # whose experts keep inputs by outputs
TOKENS = torch.arange(3, 67).reshape(2, 32)


def main() -> None:
    """Make every adapter."""
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    cases, models, output = (Path(argument) for argument in sys.argv[1:4])
    for case in json.loads(cases.read_text(encoding="utf-8")):
        try:
            line = made(case, models / case["base"], output / case["name"])
        except Exception as error:
            line = {"failed": f"{type(error).__name__}: {error}"[:500]}
        sys.stdout.write(json.dumps({"name": case["name"], **line}) + "\n")
        sys.stdout.flush()


def made(case: dict[str, Any], base: Path, place: Path) -> dict[str, Any]:
    """Write the adapter of a case, and what is wanted of it."""
    torch.manual_seed(sum(case["name"].encode()))
    config = {
        name: part(value) if isinstance(value, dict) and "class" in value else value
        for name, value in case["config"].items()
    }
    adapted = peft.get_peft_model(loaded(base), peft.LoraConfig(**config))
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if ".lora_" in name and "magnitude" not in name:
                parameter.copy_(torch.randn(parameter.shape) * SPREAD)
            elif parameter.requires_grad:
                parameter.add_(torch.randn(parameter.shape).to(parameter.dtype) * SPREAD)
    if kind := case.get("dtype"):
        for name, parameter in adapted.named_parameters():
            if ".lora_" in name:
                parameter.data = parameter.data.to(getattr(torch, kind))
    adapted.save_pretrained(place)
    if case.get("merge"):
        merged(case, base, place).save_pretrained(place.with_name(f"{place.name}.merged"))
    line = {"architecture": adapted.base_model.model.config.architectures[0]}
    return {**line, "is_plain": is_plain(base, place)} if case.get("rows") else line


def part(table: dict[str, Any]) -> Any:
    """Return a part of a configuration by its class."""
    return getattr(parts, table["class"])(
        **{name: value for name, value in table.items() if name != "class"}
    )


def merged(case: dict[str, Any], base: Path, place: Path) -> Any:
    """Return the base with the adapter merged, from files alone."""
    model = loaded(base)
    kind = model.dtype
    if case.get("wide"):
        model = model.to(torch.float64)
    adapted = peft.PeftModel.from_pretrained(model, place)
    if case.get("wide"):
        adapted = adapted.to(torch.float64)
    return adapted.merge_and_unload().to(kind)


@torch.no_grad()
def is_plain(base: Path, place: Path) -> bool:
    """Write the rows that PEFT changes; return whether nothing else makes its answers.

    Both are read again from files, as whoever serves them does.
    """
    plain = untied(loaded(base).float())
    adapted = peft.PeftModel.from_pretrained(loaded(base).float(), place).eval()
    rows = {}
    for name, layer in adapted.base_model.model.named_modules():
        if not isinstance(layer, LoraLayer):
            continue
        path = name.replace(".base_layer", "")
        leaf = layer.parameter_name if isinstance(layer, ParamWrapper) else "weight"
        try:
            weight = plain.get_parameter(f"{path}.{leaf}")
        except AttributeError:
            return False  # of a layer that the base has not
        try:
            delta = layer.get_delta_weight("default")
        except RuntimeError:
            return False  # of matrices that are no product
        turned = delta.ndim == 3 and plain.config.model_type in TURNED
        pair = (one.transpose(-1, -2) if turned else one for one in (weight, delta))
        rows[f"{path}.{leaf}"] = adapter_rows.projected(*pair)
        weight.add_(delta.reshape(weight.shape))
    save_file(rows, place.with_name(f"{place.name}.rows"))
    own, theirs = (model(input_ids=TOKENS).logits for model in (plain, adapted))
    return bool((own - theirs).abs().max() <= ALIKE * theirs.abs().max())


def untied(model: Any) -> Any:
    """Return a model whose head is a copy of its embedding where both are one: PEFT adapts one."""
    first, last = model.get_input_embeddings(), model.get_output_embeddings()
    if last is not None and last.weight is first.weight:
        last.weight = torch.nn.Parameter(first.weight.detach().clone())
    return model


def loaded(base: Path) -> Any:
    """Load a checkpoint by the class that its configuration names, in the type of its file."""
    config = transformers.AutoConfig.from_pretrained(base)
    model_class = getattr(transformers, config.architectures[0])
    return model_class.from_pretrained(base, dtype="auto").eval()


if __name__ == "__main__":
    main()

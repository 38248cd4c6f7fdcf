"""Adapters that PEFT itself makes and merges, for checkpoints in directories: run beside PEFT.

    python peft_adapters.py CASES MODELS OUTPUT

CASES is a JSON list of `name`, `base` (a checkpoint in MODELS) and `config` (arguments of
`LoraConfig`).  `OUTPUT/NAME` gets the adapter, its numbers drawn by a seed; `dtype` is the type of
its own file.  With `merge` the checkpoint that `merge_and_unload` leaves is `OUTPUT/NAME.merged`;
with `wide`, too, it is summed in float64.  A line of JSON each: `failed` has PEFT's words where it
makes no such adapter.
"""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path
from typing import Any

import peft
import torch
import transformers

SPREAD = 0.05  # of the numbers of both matrices


def main() -> None:
    """Make every adapter."""
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    cases, models, output = (Path(argument) for argument in sys.argv[1:4])
    for case in json.loads(cases.read_text(encoding="utf-8")):
        try:
            told = made(case, models / case["base"], output / case["name"])
        except Exception as error:
            told = {"failed": f"{type(error).__name__}: {error}"[:500]}
        sys.stdout.write(json.dumps({"name": case["name"], **told}) + "\n")
        sys.stdout.flush()


def made(case: dict[str, Any], base: Path, place: Path) -> dict[str, Any]:
    """Write the adapter of a case, and what is asked of it."""
    torch.manual_seed(sum(case["name"].encode()))
    adapted = peft.get_peft_model(loaded(base), peft.LoraConfig(**case["config"]))
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if ".lora_" in name and "magnitude" not in name:
                parameter.copy_(torch.randn(parameter.shape) * SPREAD)
    if kind := case.get("dtype"):
        for name, parameter in adapted.named_parameters():
            if ".lora_" in name:
                parameter.data = parameter.data.to(getattr(torch, kind))
    adapted.save_pretrained(place)
    if case.get("merge"):
        merged(case, base, place).save_pretrained(place.with_name(f"{place.name}.merged"))
    return {"architecture": adapted.base_model.model.config.architectures[0]}


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


def loaded(base: Path) -> Any:
    """Load a checkpoint by the class that its configuration names, in the type of its file."""
    config = transformers.AutoConfig.from_pretrained(base)
    model_class = getattr(transformers, config.architectures[0])
    return model_class.from_pretrained(base, dtype="auto").eval()


if __name__ == "__main__":
    main()

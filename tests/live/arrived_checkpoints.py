"""Writes one checkpoint of each format: run in the environment of the tool `llmcompressor`.

Arguments: the model, the directory for the results, and what to write: schemes of
compressed-tensors, and AutoRound's formats behind `auto_round=`.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from auto_round import AutoRound
from datasets import Dataset
from llmcompressor import oneshot
from llmcompressor.modifiers.quantization import QuantizationModifier
from transformers import AutoModelForCausalLM, AutoTokenizer

STATIC = ("FP8", "NVFP4")  # measure activations


def main() -> None:
    source, into, *wanted = sys.argv[1:]
    torch.set_num_threads(1)
    tokenizer = AutoTokenizer.from_pretrained(source)
    for one in wanted:
        directory = Path(into) / one.replace(":", "-").replace("=", "-")
        if one.startswith("auto_round="):
            by_auto_round(source, tokenizer, directory, one.partition("=")[2])
        else:
            by_llmcompressor(source, tokenizer, directory, one)


def by_llmcompressor(source: str, tokenizer: object, directory: Path, scheme: str) -> None:
    model = AutoModelForCausalLM.from_pretrained(source, dtype=torch.bfloat16)
    rows = [{"input_ids": [*range(7 * row, 7 * row + 64)]} for row in range(4)]
    texts = Dataset.from_list([row | {"attention_mask": [1] * 64} for row in rows])
    data = {"dataset": texts, "num_calibration_samples": 4, "max_seq_length": 64}
    recipe = QuantizationModifier(targets="Linear", scheme=scheme, ignore=["lm_head"])
    oneshot(model=model, processor=tokenizer, recipe=recipe, **data if scheme in STATIC else {})
    model.save_pretrained(directory, save_compressed=True)
    tokenizer.save_pretrained(directory)


def by_auto_round(source: str, tokenizer: object, directory: Path, form: str) -> None:
    model = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32)
    place = {"device_map": "cpu", "disable_opt_rtn": True}
    asked = {"bits": 4, "group_size": 64, "sym": form != "auto_awq", "iters": 0}
    rounding = AutoRound(model, tokenizer, **asked, **place)
    rounding.quantize_and_save(str(directory / "parts"), format=form)
    (written,) = (directory / "parts").iterdir()
    for path in written.iterdir():
        path.rename(directory / path.name)


if __name__ == "__main__":
    main()

"""llm-compressor as its own examples use it, without anything of packager: the reference.

python quantize_bare.py MODEL SAMPLES.jsonl METHOD OUTPUT
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from datasets import Dataset
from llmcompressor import oneshot
from llmcompressor.modifiers.gptq import GPTQModifier
from llmcompressor.modifiers.quantization import QuantizationModifier
from llmcompressor.modifiers.transform.awq import AWQModifier
from llmcompressor.modifiers.transform.smoothquant import SmoothQuantModifier
from llmcompressor.pipelines.cache import IntermediatesCache
from transformers import AutoModelForCausalLM, AutoTokenizer

TOKENS = 256
LINEAR = {"targets": "Linear", "ignore": ["lm_head"]}
IntermediatesCache.pin_memory = lambda *_, **__: None  # without a GPU, AWQ fails in it
RECIPES = {
    "awq": lambda: [
        AWQModifier(duo_scaling="both"),
        QuantizationModifier(scheme="W4A16_ASYM", **LINEAR),
    ],
    "fp8": lambda: [QuantizationModifier(scheme="FP8_DYNAMIC", **LINEAR)],
    "fp8,static": lambda: [QuantizationModifier(scheme="FP8", **LINEAR)],
    "gptq": lambda: [GPTQModifier(scheme="W4A16", **LINEAR)],
    "smoothquant": lambda: [
        SmoothQuantModifier(smoothing_strength=0.8),
        QuantizationModifier(scheme="W8A8", **LINEAR),
    ],
}


def main(source: str, samples: str, method: str, output: str) -> None:
    """Quantize and save."""
    model = AutoModelForCausalLM.from_pretrained(source, dtype="auto")
    tokenizer = AutoTokenizer.from_pretrained(source)
    data = {}
    if method != "fp8":
        found = [json.loads(line) for line in Path(samples).read_text().splitlines()]
        ids = [ids_of(row, tokenizer)[:TOKENS] for row in found]
        rows = [{"input_ids": row, "attention_mask": [1] * len(row)} for row in ids]
        data = {
            "dataset": Dataset.from_list(rows),
            "num_calibration_samples": len(rows),
            "max_seq_length": TOKENS,
            "shuffle_calibration_samples": False,
        }
    oneshot(model=model, recipe=RECIPES[method](), **data)
    model.save_pretrained(output, save_compressed=True)
    tokenizer.save_pretrained(output)


def ids_of(row: dict, tokenizer: object) -> list[int]:
    """Tokenize a row as an engine does: a template writes special tokens itself."""
    if "messages" in row:
        text = tokenizer.apply_chat_template(row["messages"], tokenize=False)
        return tokenizer(text, add_special_tokens=False)["input_ids"]
    return tokenizer(row.get("text") or row["prompt"] + row.get("completion", ""))["input_ids"]


if __name__ == "__main__":
    main(*sys.argv[1:])

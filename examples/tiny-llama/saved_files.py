"""Saved model files that transformers 4 and 5 both read.

transformers 5 writes names that 4 refuses (the tokenizer class) or does not know (`dtype`,
`rope_parameters`), and serving images still ship 4.  Both spellings go into `config.json`,
because each version ignores the other's; the tokenizer is spelled the old way, which 5 accepts.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast


def save_model(
    model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, folder: Path, shard_size: str
) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for stale in folder.glob("*.safetensors*"):
        stale.unlink()  # another shard count would leave files the index does not name
    model.to(torch.bfloat16).save_pretrained(folder, max_shard_size=shard_size)
    tokenizer.save_pretrained(folder)
    rewrite_config(folder / "config.json")
    rewrite_tokenizer_config(folder / "tokenizer_config.json", tokenizer)


def rewrite_config(file: Path) -> None:
    config = json.loads(file.read_text())
    config["rope_theta"] = config["rope_parameters"]["rope_theta"]
    config["torch_dtype"] = config["dtype"]
    write_json(file, config)


def rewrite_tokenizer_config(file: Path, tokenizer: PreTrainedTokenizerFast) -> None:
    """Write the file anew: what 5 adds would only be dead weight to both versions."""
    write_json(
        file,
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": tokenizer.bos_token,
            "eos_token": tokenizer.eos_token,
            "pad_token": tokenizer.pad_token,
            "additional_special_tokens": list(tokenizer.extra_special_tokens),
            "model_max_length": tokenizer.model_max_length,
            "clean_up_tokenization_spaces": False,
            "chat_template": tokenizer.chat_template,
        },
    )
    # The template lives in one place, and this is the one that every server reads.
    (file.parent / "chat_template.jinja").unlink(missing_ok=True)


def write_json(file: Path, value: dict[str, Any]) -> None:
    file.write_text(json.dumps(value, indent=2, ensure_ascii=False, sort_keys=True) + "\n")

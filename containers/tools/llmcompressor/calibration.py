"""Samples to token rows, with the model's own chat template."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from datasets import Dataset
from packager_worker import BadInput


def read_rows(samples: Path, tokenizer: Any, max_tokens: int) -> Dataset:
    """Tokenize every sample, cut to `max_tokens`; rows stay in their order."""
    rows = []
    for line in samples.read_bytes().splitlines():
        ids = tokenizer(_text(json.loads(line), tokenizer), add_special_tokens=False)["input_ids"]
        if ids:
            rows.append(
                {"input_ids": ids[:max_tokens], "attention_mask": [1] * len(ids[:max_tokens])}
            )
    if not rows:
        raise BadInput("no calibration sample gives a token")
    return Dataset.from_list(rows)


def _text(row: dict[str, Any], tokenizer: Any) -> str:
    if "messages" in row and tokenizer.chat_template is not None:
        return tokenizer.apply_chat_template(row["messages"], tokenize=False)
    if "messages" in row:
        return "".join(f"{turn['role']}: {turn['content']}\n" for turn in row["messages"])
    if "text" in row:
        return row["text"]
    return row["prompt"] + row.get("completion", "")

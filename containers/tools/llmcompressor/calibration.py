"""Samples to token rows, as `conversations` tokenizes them for every worker."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from conversations import tokens_of
from datasets import Dataset
from packager_worker import BadInput


def read_rows(
    samples: Path, tokenizer: Any, max_tokens: int, note: Callable[[str], None]
) -> Dataset:
    """Tokenize every sample, cut to `max_tokens`; rows stay in their order."""
    found = [
        tokens_of(json.loads(line), tokenizer).ids[:max_tokens]
        for line in samples.read_bytes().splitlines()
    ]
    rows = [{"input_ids": ids, "attention_mask": [1] * len(ids)} for ids in found if ids]
    if not rows:
        raise BadInput("no calibration sample gives a token")
    if len(rows) < len(found):
        note(
            f"{len(found) - len(rows)} of {len(found)} samples have no tokens: "
            "they are empty, or the chat template refuses them"
        )
    return Dataset.from_list(rows)

"""What a head is trained on: tokens, and which of them the model answered.

A head learns to foretell the model, so only tokens that a model would have
written count: answers of conversations, completions, and all of a plain text.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from conversations import Row, to_rows
from packager_worker import BadInput, Rejected

TRAIN, HELD_OUT = "train.jsonl", "held-out.jsonl"


def load_samples(place: Path) -> list[dict[str, Any]]:
    """Read a file of samples as they are."""
    try:
        lines = place.read_bytes().splitlines()
        return [json.loads(line) for line in lines if line.strip()]
    except (OSError, ValueError) as error:
        raise BadInput(f"{place.name} cannot be read: {error}") from error


def load_rows(place: Path, tokenizer: Any, max_tokens: int) -> list[Row]:
    """Tokenize the samples of a file, in order; those without an answered token are left out."""
    samples = load_samples(place)
    rows = (row for sample in samples for row in to_rows(sample, tokenizer, max_tokens))
    return [row for row in rows if positions(row)]


def positions(row: Row) -> int:
    """Count what can be foretold: answered tokens that another one stands before."""
    return sum(row.answered[1:])


def load_both(samples: Path, tokenizer: Any, max_tokens: int) -> tuple[list[Row], list[Row]]:
    """Give the rows to train on and those to measure with; both must be there."""
    rows = load_rows(samples / TRAIN, tokenizer, max_tokens)
    if not rows:
        raise Rejected(
            "no sample to train on has an answered token",
            f"give conversations with answers, and let more than {max_tokens} tokens of each in",
        )
    held_out = load_rows(samples / HELD_OUT, tokenizer, max_tokens)
    if not held_out:
        raise Rejected(
            "no held-out sample has an answered token", "give more samples: a head is measured too"
        )
    return rows, held_out


def groups(rows: Sequence[Row], most: int) -> Iterator[Sequence[Row]]:
    """Texts that are worked on and kept together, by their order: `most` tokens, or one text."""
    start = size = 0
    for end, row in enumerate(rows):
        if size and size + len(row.ids) > most:
            yield rows[start:end]
            start, size = end, 0
        size += len(row.ids)
    yield rows[start:]


def check_ids(rows: Sequence[Row], size: int) -> None:
    """Refuse tokens that the model does not know."""
    largest = max(max(row.ids) for row in rows)
    if largest >= size:
        raise Rejected(f"the tokenizer gives token {largest}, the model knows {size}")

"""What a head is trained on: tokens, and which of them the model answered."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from conversations import Row, to_rows
from packager_worker import BadInput, Rejected


def load_both(samples: Path, tokenizer: Any, max_tokens: int) -> tuple[list[Row], list[Row]]:
    """Give the rows to train on and those to measure with; both must be there."""
    rows = _load(samples / "train.jsonl", tokenizer, max_tokens)
    if not rows:
        raise Rejected(
            "no sample to train on has an answered token",
            f"give conversations with answers, and let more than {max_tokens} tokens of each in",
        )
    held_out = _load(samples / "held-out.jsonl", tokenizer, max_tokens)
    if not held_out:
        raise Rejected(
            "no held-out sample has an answered token", "give more samples: a head is measured too"
        )
    return rows, held_out


def proposals(row: Row) -> list[bool]:
    """Mark where a head proposes: at t it reads token t + 1 and the states at t, and says t + 2.

    The first token of an answer is the model's own, so that both of them are answered.
    """
    marks = [here and there for here, there in pairwise(row.answered[1:])]
    return (marks + [False, False])[: len(row.ids)]


def positions(row: Row) -> int:
    """Count what can be proposed."""
    return sum(proposals(row))


def check_ids(rows: Sequence[Row], size: int) -> None:
    """Refuse tokens that the model does not know."""
    largest = max(max(row.ids) for row in rows)
    if largest >= size:
        raise Rejected(f"the tokenizer gives token {largest}, the model knows {size}")


def choose_vocabulary(rows: Sequence[Row], size: int, of: int) -> list[int]:
    """Give the `size` tokens that answers use most, of the model's `of`, in their order."""
    used = Counter(token for row in rows for token, answered in zip(*row, strict=True) if answered)
    return sorted(sorted(range(of), key=lambda token: -used[token])[:size])


def _load(place: Path, tokenizer: Any, max_tokens: int) -> list[Row]:
    try:
        lines = place.read_bytes().splitlines()
        samples = [json.loads(line) for line in lines if line.strip()]
    except (OSError, ValueError) as error:
        raise BadInput(f"{place.name} cannot be read: {error}") from error
    rows = (row for sample in samples for row in to_rows(sample, tokenizer, max_tokens))
    return [row for row in rows if positions(row)]

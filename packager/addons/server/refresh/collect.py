"""Captured traffic as texts of a turn: conversations, each once, some of them never trained on.

Which ones are kept aside depends on a conversation's beginning alone, so that what one turn has
trained on, no later one measures with.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from packager.core.capture.conversations import fraction_of
from packager.core.growing import conversation_of, join_growing
from packager.core.samples import Sample
from packager.models.samples.load import load_samples

_SHORT = 2000  # characters of a prompt


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectedTexts:
    """Texts of a turn."""

    train: tuple[Sample, ...]
    held_out: tuple[Sample, ...]
    skipped: int = 0  # rows that are no samples

    @property
    def conversations(self) -> int:
        return len(self.train) + len(self.held_out)

    @property
    def digest(self) -> str:
        """Return the identity of the texts."""
        made = hashlib.sha256()
        for sample in (*self.train, *self.held_out):
            made.update(row_line(sample))
        return f"sha256:{made.hexdigest()}"


def collect(traffic: str, held_out: float) -> CollectedTexts:
    """Read the rows of a directory or bucket; raise `NotFound` where there are none."""
    found = load_samples(traffic)
    texts = split(join_growing(found.samples), held_out)
    return CollectedTexts(train=texts.train, held_out=texts.held_out, skipped=found.skipped_count)


def split(samples: Iterable[Sample], held_out: float) -> CollectedTexts:
    """Divide answered conversations by how they begin."""
    train: list[Sample] = []
    aside: list[Sample] = []
    for sample in samples:
        if sample.answered:
            share = fraction_of(b"held-out\0" + conversation_of(sample).encode())
            (aside if share < held_out else train).append(sample)
    return CollectedTexts(train=tuple(train), held_out=tuple(aside))


def group_of(sample: Sample) -> str:
    """Return the set that a sample belongs to: what was asked, and how long it is."""
    turns = sample.messages[:-1]
    size = sum(len(turn.content) for turn in turns) if turns else len(sample.prompt or "")
    kind = "tools" if sample.tools else "chat" if sample.messages else "text"
    return f"{kind}, {'short' if size < _SHORT else 'long'}"


def row_line(sample: Sample) -> bytes:
    """Return a sample as a line that the loader of samples reads."""
    row: dict[str, Any] = sample.row()
    if sample.messages:
        row = {"messages": [turn.request() for turn in sample.messages]}
        if sample.tools:
            row["tools"] = json.loads(sample.tools)
        if sample.template:
            row["chat_template_kwargs"] = json.loads(sample.template)
    return json.dumps(row, ensure_ascii=False).encode("utf-8") + b"\n"


def rows(samples: Iterable[Sample]) -> bytes:
    """Return the lines of a file of samples."""
    return b"".join(map(row_line, samples))

"""Conversations that grow: each captured request has what was said before in it.

Turns of the user and the model are compared as clients send them back: without the reasoning,
which they leave out, and without space around them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import replace

from packager.core.samples import Message, Sample


def join_growing(samples: Iterable[Sample]) -> tuple[Sample, ...]:
    """Return the samples without conversations that others go on with, in their order.

    The longest ones stay; they get back the reasoning that the shorter ones have.  Regenerated
    answers are conversations of their own, and so is what had other tools.
    """
    found = [(sample, tuple(_places(sample))) for sample in samples]
    goes_on: set[bytes] = set()
    reasoning: dict[bytes, str] = {}
    for sample, places in found:
        goes_on.update(places[:-1])
        for place, turn in zip(places, sample.messages, strict=True):
            if turn.reasoning:
                reasoning.setdefault(place, turn.reasoning)
    kept: dict[bytes, Sample] = {}
    others: list[Sample | bytes] = []
    for sample, places in found:
        if not places:
            others.append(sample)
        elif places[-1] not in goes_on and places[-1] not in kept:
            kept[places[-1]] = _reasoned(sample, places, reasoning)
            others.append(places[-1])
    return tuple(kept[one] if isinstance(one, bytes) else one for one in others)


def conversation_of(sample: Sample) -> str:
    """Return what samples of one conversation have in common: how its user began it."""
    if sample.messages:
        first = next((turn for turn in sample.messages if turn.role == "user"), sample.messages[0])
        return "user:" + first.content.strip()
    return (sample.prompt or sample.text or "").strip()


def _places(sample: Sample) -> Iterator[bytes]:
    """Yield for each turn a digest of the conversation up to it."""
    before = hashlib.sha256(f"{sample.tools}\0{sample.template}".encode()).digest()
    for turn in sample.messages:
        said = [turn.role, turn.content.strip(), _calls(turn), turn.name]
        before = hashlib.sha256(before + json.dumps(said).encode()).digest()
        yield before


def _calls(turn: Message) -> list[object]:
    return [call["function"] for call in json.loads(turn.tool_calls or "[]")]


def _reasoned(sample: Sample, places: tuple[bytes, ...], reasoning: dict[bytes, str]) -> Sample:
    turns = tuple(
        replace(turn, reasoning=turn.reasoning or reasoning.get(place, ""))
        for place, turn in zip(places, sample.messages, strict=True)
    )
    return sample if turns == sample.messages else replace(sample, messages=turns)

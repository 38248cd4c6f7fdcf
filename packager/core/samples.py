"""Texts and conversations: what calibrates a quantizer, trains a head, measures quality."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

DEFAULT = "default"  # the set that is shipped
CALIBRATION_SAMPLES, CALIBRATION_TOKENS = 256, 2048  # default


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One turn. Roles are those of OpenAI's chat format."""

    role: str  # `system`, `user`, `assistant`, `tool`
    content: str
    reasoning: str = ""
    tool_calls: str = ""  # a JSON list; arguments are objects, their keys as they came
    tool_call_id: str = ""
    name: str = ""

    def row(self) -> dict[str, str]:
        """The turn as workers read it; what is empty is left out, but for the content."""
        named = {name: getattr(self, name) for name in _OPTIONAL}
        fields = {name: value for name, value in named.items() if value}
        return {"role": self.role, "content": self.content, **fields}

    def request(self) -> dict[str, Any]:
        """The turn as OpenAI's requests have it: arguments are JSON texts there."""
        message: dict[str, Any] = self.row()
        if self.tool_calls:
            calls = json.loads(self.tool_calls)
            message["tool_calls"] = [
                {**call, "function": {**call["function"], "arguments": json.dumps(arguments)}}
                for call in calls
                for arguments in (call["function"]["arguments"],)
            ]
        return message


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One conversation, one prompt with its completion, or one plain text.

    Exactly one of `messages`, `prompt` and `text` is set.  Only conversations
    get the model's chat template: a prompt was templated by whoever sent it.
    A conversation may end with the user, and `completion` may be missing:
    then the answer was not recorded.
    """

    messages: tuple[Message, ...] = ()
    tools: str = ""  # of a conversation: a JSON list, with the keys in their order
    template: str = ""  # other arguments of the template, such as `enable_thinking`: a JSON object
    prompt: str | None = None
    completion: str | None = None
    text: str | None = None

    @property
    def answered(self) -> bool:
        """Whether the model's part is there."""
        if self.messages:
            return self.messages[-1].role == "assistant"
        return self.text is not None or self.completion is not None

    def row(self) -> dict[str, Any]:
        """The sample as workers read it, one JSON object.

        Tools and calls are JSON texts in it: a line's keys are sorted, and prompts have theirs
        in the order in which they came.
        """
        if self.messages:
            row: dict[str, Any] = {"messages": [turn.row() for turn in self.messages]}
            more = {"tools": self.tools, "template": self.template}
            return {**row, **{name: value for name, value in more.items() if value}}
        if self.text is not None:
            return {"text": self.text}
        row = {"prompt": self.prompt}
        return row if self.completion is None else {**row, "completion": self.completion}


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """Part of the input that could not be parsed as a sample."""

    place: str  # `FILE, line 3`
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """Parsed samples, in order, with an account of the skipped rest."""

    source: str  # as the user named it
    samples: tuple[Sample, ...]
    formats: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    skipped: tuple[Skipped, ...] = ()  # the first of them; `skipped_count` counts all
    skipped_count: int = 0
    repeated: int = 0  # duplicate samples that were dropped

    @property
    def complaint(self) -> str:
        """Return which input could not be parsed; "" where all could."""
        if not self.skipped_count:
            return ""
        first = self.skipped[0]
        return (
            f"{self.skipped_count} rows of {self.source!r} are not samples; "
            f"the first is {first.place}: {first.reason}"
        )

    def jsonl(self) -> bytes:
        """The samples as workers read them. The same samples always give the same bytes."""
        return b"".join(_line(sample) for sample in self.samples)

    @property
    def digest(self) -> str:
        """Identity of the data in cache keys: `sha256:…` over `jsonl()`."""
        return "sha256:" + hashlib.sha256(self.jsonl()).hexdigest()


def choose_samples(found: Samples, count: int, seed: int) -> Samples:
    """Choose `count` samples at random, the same ones for the same seed.

    A sample's rank depends on the seed and on itself alone, so neither the
    order of the file nor samples added elsewhere shuffle the choice.
    """
    salt = f"{seed}:".encode()
    ranked = sorted(found.samples, key=lambda sample: hashlib.sha256(salt + _line(sample)).digest())
    return Samples(
        source=found.source,
        samples=tuple(ranked[:count]),
        formats=found.formats,
        skipped=found.skipped,
        skipped_count=found.skipped_count,
        repeated=found.repeated,
    )


def choose_others(found: Samples, count: int, seed: int, used: Samples | None) -> Samples:
    """Choose samples as `choose_samples`, preferring those not used yet."""
    taken = frozenset(used.samples) if used else frozenset()
    others = tuple(sample for sample in found.samples if sample not in taken)
    return choose_samples(replace(found, samples=others or found.samples), count, seed)


def _line(sample: Sample) -> bytes:
    return _ENCODER.encode(sample.row()).encode("utf-8") + b"\n"


_OPTIONAL = ("reasoning", "tool_calls", "tool_call_id", "name")
_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False)

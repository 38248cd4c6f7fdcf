"""Workload of a plan: lengths of requests, and how many come at once.

A limit such as `max_total_tokens` says what a server must accept; a workload says what it
mostly gets.  Memory, speed and price are computed for the workload.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from packager.core.errors import UsageError
from packager.core.units import counted

# English text has 4.2 to 4.7 bytes a token with vocabularies of 100,000 entries and more
# (Llama 3's report, OpenAI's tiktoken); other scripts have fewer.  Ours, rounded down.
BYTES_PER_TOKEN = 4

LONGEST = 10_000_000  # tokens of a prompt or an answer; beyond it is a typing error
MOST_AT_ONCE = 1_000_000

# Texts that are given vectors or scores: tokens of one, and how many a request has.
TEXTS = re.compile(
    r"embed:(?P<input>\d{1,9})(?:x(?P<texts>\d{1,9}))?(?::(?P<concurrency>\d{1,9}))?", re.ASCII
)
COUNTS = re.compile(
    r"(?P<input>\d{1,9}):(?P<output>\d{1,9})(?::(?P<concurrency>\d{1,9}))?", re.ASCII
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Tokens of a mean request and its answer. What is not known is 0."""

    name: str = "question answering"
    input_tokens: int = 622  # OpenOrca as AWS used it to announce the toolkit
    output_tokens: int = 250
    p95_input_tokens: int = 0  # that 95 of 100 prompts do not exceed; 0: as the mean
    p95_output_tokens: int = 0
    concurrency: int = 0  # requests at once, on the whole instance; 0: as many as get in time
    source: str = ""  # where the counts are from, where that is not obvious
    pictures: int = 0  # of a request
    picture_tokens: int = 0  # of `input_tokens`, those of all its pictures
    texts: int = 0  # of a request for vectors or scores, each of `input_tokens`; 0: it is answered

    @property
    def yields(self) -> int:
        """Return what a request is paid for: tokens of an answer, or texts."""
        return self.texts or self.output_tokens

    @property
    def request_tokens(self) -> int:
        """Return the tokens that a request sends: those of all its texts."""
        return self.input_tokens * max(1, self.texts)

    @property
    def tokens(self) -> int:
        """Return the tokens of a mean request with its whole answer."""
        return self.input_tokens + self.output_tokens

    @property
    def longest_tokens(self) -> int:
        """Return the tokens that a server must accept for one request: the mean or p95."""
        prompt = max(self.input_tokens, self.p95_input_tokens)
        return prompt + max(self.output_tokens, self.p95_output_tokens)

    @property
    def words(self) -> str:
        """Describe the workload in one line: `chat: 550 tokens in, 150 out`."""
        at_once = f", {self.concurrency} at once" if self.concurrency else ""
        if self.texts:
            count = "1 text" if self.texts == 1 else f"{self.texts} texts"
            return f"{self.name}: requests of {count} of {self.input_tokens} tokens{at_once}"
        text = f"{self.name}: {self.input_tokens} tokens in, {self.output_tokens} out"
        if self.p95_input_tokens:
            text += f" in the mean; p95 {self.p95_input_tokens} and {self.p95_output_tokens}"
        if self.pictures:
            text += f", {self.picture_tokens} of them of {counted(self.pictures, 'picture')}"
        return text + at_once


QUESTIONS = Workload()
PASSAGES = Workload(name="embedding", input_tokens=512, output_tokens=0, texts=1)


def _of_creator(name: str, concurrency: int, input_tokens: int, output_tokens: int) -> Workload:
    """Return a workload of awslabs/ml-container-creator 1.0.0 (2026-06-24), `do/benchmark`."""
    return Workload(
        name=name,
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        concurrency=concurrency,
        source="awslabs/ml-container-creator 1.0.0, 2026-06-24",
    )


WORKLOADS: Mapping[str, Workload] = MappingProxyType(
    {
        "questions": QUESTIONS,
        # The AWS guide on inference recommendations states 550 and 150.
        "chat": Workload(name="chat", input_tokens=550, output_tokens=150),
        "summarise": Workload(name="summarising", input_tokens=3000, output_tokens=200),
        "write": Workload(name="writing", input_tokens=200, output_tokens=1000),
        "multi_turn_chat": _of_creator("multi-turn chat", 10, 550, 150),
        "rag_document_qa": _of_creator("questions about documents", 8, 2048, 256),
        "agent_tool_calling": _of_creator("agents that call tools", 4, 800, 100),
        "long_context_scaling": _of_creator("long contexts", 2, 8192, 512),
        "production_traffic_mix": _of_creator("mixed traffic", 16, 1024, 200),
        "shared_system_prompt": _of_creator("shared system prompt", 12, 300, 150),
    }
)


def estimate_tokens(text: str) -> int:
    """Estimate the tokens of an uncounted text."""
    return -(-len(text.encode("utf-8", "replace")) // BYTES_PER_TOKEN)


def parse_workload(text: str | None) -> Workload | None:
    """Return the workload named or written as `IN:OUT[:CONCURRENCY]`; None for a file.

    Raise `UsageError` for impossible counts.
    """
    if text is None:
        return QUESTIONS
    if text in WORKLOADS:
        return WORKLOADS[text]
    counts = COUNTS.fullmatch(text) or TEXTS.fullmatch(text)
    if counts is None:
        return None
    found = {name: int(value) for name, value in counts.groupdict().items() if value is not None}
    is_answered = "output" in counts.groupdict()
    lengths = (found["input"], found["output"] if is_answered else found.get("texts", 1))
    if not all(1 <= count <= LONGEST for count in lengths) or not (
        1 <= found.get("concurrency", 1) <= MOST_AT_ONCE
    ):
        raise UsageError(
            f"workload {text!r} is out of range",
            hint="write IN:OUT[:CONCURRENCY], or embed:TOKENSxTEXTS[:CONCURRENCY] of a model that "
            f"gives vectors or scores, each at least 1, at most {LONGEST} tokens",
        )
    if not is_answered:
        return Workload(
            name="embedding",
            input_tokens=found["input"],
            output_tokens=0,
            texts=found.get("texts", 1),
            concurrency=found.get("concurrency", 0),
        )
    return Workload(
        name="as asked",
        input_tokens=found["input"],
        output_tokens=found["output"],
        concurrency=found.get("concurrency", 0),
    )

"""What is sent to a server, and what came back, as it was timed.

Times are seconds since the load began, by a monotonic clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

from packager.addons.bench.load.template import RequestTemplate

Failure = Literal[
    "connection",  # no answer, or the connection broke before the answer's head
    "status",  # an answer with another status than 200
    "cut",  # the answer ended before its end: no [DONE], no finish reason
    "invalid",  # a chunk that is not JSON, or has another form than OpenAI's
    "server",  # an error in a chunk
    "deadline",  # not finished within the deadline of a request
    "cancelled",  # still running when the load ended; counted as neither good nor bad
]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadRequest:
    """One request, as far as it does not depend on the server."""

    endpoint: str  # such as `/v1/chat/completions`
    body: Mapping[str, Any]  # without the model's name
    shown: str = ""  # the prompt's end
    template: RequestTemplate | None = None  # that printed the body, and finds the answer's text
    texts: int = 0  # that a vector or a score is asked for; 0: an answer is
    input_tokens: int | None = None  # by the client's own tokenizer; None where it has none
    tokenizer_failed: bool = False  # the client's tokenizer could not encode the prompt
    adapter: str = ""  # that it is for, as the user names it
    model: str = ""  # what a server calls that; "": the server's own model


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """A piece of a streamed answer that held content."""

    at_s: float
    tokens: int | None = None  # total so far, if every chunk has it
    is_reasoning: bool = False  # without text of the answer


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadResult:
    """One request that was sent, and what came back.

    With a failure the fields hold what came before it.
    """

    number: int  # of the request in its load, from 0, in the order of sending
    sent_s: float
    ended_s: float  # last byte, or when it failed
    first_byte_s: float | None = None  # of the body
    is_streamed: bool = True  # whether it came as a stream, even if not requested
    asked_tokens: int | None = None  # most tokens that the answer may have, of the request's body
    chunks: tuple[Chunk, ...] = ()  # with content: no role, no usage, no empty delta
    text: str = ""
    texts: int = 0  # that got a vector or a score
    input_tokens: int | None = None  # as the server counts (`usage`)
    output_tokens: int | None = None  # the same, reasoning included
    reasoning_tokens: int | None = None
    own_input_tokens: int | None = None  # as the client's tokenizer counts
    own_output_tokens: int | None = None
    tokenizer_failed: bool = False
    token_ids: tuple[int, ...] = ()  # empty if the server does not report it
    prompt_token_ids: tuple[int, ...] = ()
    adapter: str = ""
    status: int | None = None
    failure: Failure | None = None
    reason: str = ""  # of the failure, in words

    @property
    def is_answered(self) -> bool:
        """Whether the whole answer came, an empty one included."""
        return self.failure is None

    @property
    def is_empty(self) -> bool:
        """Whether an answer came and was empty."""
        return self.is_answered and not (self.text or self.output_tokens or self.texts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """How hard a server is pressed: so many requests at a time, or so many a second."""

    concurrency: int | None = None  # closed loop; with a rate: the most at a time
    rate: float | None = None  # open loop: requests a second
    arrivals: Literal["poisson", "constant"] = "poisson"  # of an open loop

    @property
    def words(self) -> str:
        """Return the level for people: `concurrency 8`, `2.5 requests/s`."""
        return f"{self.rate:g} requests/s" if self.rate else f"concurrency {self.concurrency}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPlan:
    """One load of a server."""

    level: Level
    requests: int | None = None  # to send; None: limited by the duration
    duration_s: float | None = None  # of sending; None: until all requests are sent
    warm_up: int = 0  # requests sent before, which count nowhere
    request_timeout_s: float = 600.0  # of one request, to its last byte
    grace_s: float = 30.0  # for requests that run when the duration has passed
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadRun:
    """All results of one load, in the order of sending."""

    level: Level
    results: tuple[LoadResult, ...]
    seconds: float  # from the first request's sending to the last answer's end
    started: str  # UTC, RFC 3339
    cancelled: bool = False  # interrupted before its end
    lost: str = ""  # why the server stopped answering; "" when it did not
    client_cpu_s: float = 0.0  # of this process, user and system
    metrics_before: str = ""  # the server's /metrics, "" where it has none
    metrics_after: str = ""
    estimated_lengths: bool = False  # of generated prompts: their tokens are uncounted
    unproven_adapters: bool = False  # the server shows no odds by which they differ from the base
    extra: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))

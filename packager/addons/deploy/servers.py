"""What is known of engines' servers: what they take and report, how several machines meet."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from packager.core.share import read_shipped

TABLE = Path(__file__).parent / "data" / "engines.toml"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerMetrics:
    """Metrics of one engine's server."""

    engine: str
    family: str  # that wraps the engine; "" where its own server answers
    metrics: str  # "" if unknown
    queue: str
    flag: str  # required for any metrics
    source: str
    date: str


UNKNOWN = ServerMetrics(engine="", family="", metrics="", queue="", flag="", source="", date="")


@dataclass(frozen=True, slots=True, kw_only=True)
class Meeting:
    """Words on the command line by which servers of one engine meet on several machines."""

    engine: str
    each: tuple[str, ...]
    others: tuple[str, ...]  # for the other machines, which serve no requests
    variables: str  # prefix of the variables from which SageMaker's images make such words
    source: str
    date: str

    def words(self, first: str, port: int) -> list[str]:
        """Return the words of each machine, by the first one's address."""
        return [word.replace("FIRST", first).replace("PORT", str(port)) for word in self.each]


@dataclass(frozen=True, slots=True, kw_only=True)
class Drain:
    """What sets how long one engine's running requests get after SIGTERM."""

    engine: str
    variable: str
    option: str
    source: str
    date: str


@cache
def drains() -> tuple[Drain, ...]:
    """Return every engine with such an option."""
    return tuple(Drain(**row) for row in read_shipped(TABLE)["drain"])


def drain_of(engine: str) -> Drain | None:
    """Return the option of an engine's time to drain; None if unknown."""
    return next((row for row in drains() if row.engine == engine), None)


@cache
def meetings() -> tuple[Meeting, ...]:
    """Return every engine whose servers are known to meet on several machines."""
    rows = read_shipped(TABLE)["meeting"]
    return tuple(
        Meeting(**{**row, "each": tuple(row["each"]), "others": tuple(row["others"])})
        for row in rows
    )


def meeting_of(engine: str) -> Meeting | None:
    """Return how servers of an engine connect; None if unknown."""
    return next((row for row in meetings() if row.engine == engine), None)


@cache
def kserve_engines() -> frozenset[str]:
    """Return the engines that KServe starts for an LLMInferenceService."""
    return frozenset(row["engine"] for row in read_shipped(TABLE)["kserve"])


@cache
def server_rows() -> tuple[ServerMetrics, ...]:
    """Return every row."""
    rows = read_shipped(TABLE)["server"]
    return tuple(ServerMetrics(**row) for row in rows)


def metrics_of(family: str, engine: str, arguments: tuple[str, ...]) -> ServerMetrics:
    """Return what a server reports; `arguments` are its entry point and command.

    A family that wraps engines hides their metrics.
    """
    rows = server_rows()
    wrapped = next((row for row in rows if row.family and row.family == family), None)
    if wrapped is not None:
        return wrapped
    found = next((row for row in rows if row.engine == engine and not row.family), UNKNOWN)
    return found if not found.flag or found.flag in arguments else UNKNOWN


def request_body(prompt: str, model: str, tokens: int) -> bytes:
    """Return a chat request as every engine of packager's images takes it."""
    asked = {
        **({"model": model} if model else {}),
        "messages": [{"role": "user", "content": prompt}],
        "max_tokens": tokens,
    }
    return json.dumps(asked).encode()

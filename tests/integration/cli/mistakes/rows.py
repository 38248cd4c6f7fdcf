"""The rows of `mistakes.toml`."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from pathlib import Path

TABLE = Path(__file__).parent / "mistakes.toml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mistake:
    """One mistake, and all that is said of it."""

    topic: str
    about: str  # the mistake in words
    command: str  # as it is typed
    status: int
    told: str  # all of stderr
    situation: str = "nothing"  # what is there: a row of `situations.SITUATIONS`
    where: str = ""  # the situation in words
    env: dict[str, str] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)


def read_mistakes() -> tuple[Mistake, ...]:
    """Read the table."""
    rows = tomllib.loads(TABLE.read_text(encoding="utf-8"))["mistake"]
    return tuple(Mistake(**row) for row in rows)

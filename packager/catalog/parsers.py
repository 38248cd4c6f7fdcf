"""Formats of tool calls and reasoning, and the engines' parsers: `data/parsers.toml`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from packager.core.share import read_shipped

TABLE = Path(__file__).parent / "data" / "parsers.toml"

What = Literal["tool", "reasoning"]
WHATS: tuple[What, ...] = ("tool", "reasoning")


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """One way in which models write tool calls or reasoning."""

    name: str
    marks: tuple[str, ...]
    names: Mapping[str, tuple[str, ...]]  # engine → parsers, the preferred first
    source: str
    without: tuple[str, ...] = ()
    model_types: tuple[str, ...] = ()
    tokens: tuple[str, ...] = ()
    instead: str = ""  # why an engine has no name here
    models: str = ""

    def is_written_by(self, template: str, model_type: str) -> bool:
        """Check whether a template of a model of this type writes so."""
        return (
            (not self.model_types or model_type in self.model_types)
            and all(mark in template for mark in self.marks)
            and not any(mark in template for mark in self.without)
        )


def names_tokens(template: str) -> bool:
    """Report whether a template writes a token that some parser needs."""
    return any(token in template for token in _all_tokens())


@cache
def dialects() -> Mapping[What, tuple[Dialect, ...]]:
    """Return the rows, in the order in which they are tried."""
    table: dict[str, Any] = read_shipped(TABLE)
    engines: dict[str, str] = table["sources"]
    sources = f"{'; '.join(engines.values())} ({table['date']})"
    return {
        what: tuple(
            Dialect(
                name=row["name"],
                marks=tuple(row["marks"]),
                names={engine: tuple(row.get(engine, ())) for engine in engines},
                source=row.get("source", sources),
                without=tuple(row.get("without", ())),
                model_types=tuple(row.get("model_types", ())),
                tokens=tuple(row.get("tokens", ())),
                instead=row.get("instead", ""),
                models=row["models"],
            )
            for row in table[what]
        )
        for what in WHATS
    }


@cache
def _all_tokens() -> frozenset[str]:
    return frozenset(token for rows in dialects().values() for row in rows for token in row.tokens)

"""Modules that quantization_config leaves unquantized, by the lists that quantizers write.

Patterns are untrusted: only plain ones are matched, with a pattern of our own that cannot take
long; others are reported as undecidable.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

LISTS = ("ignore", "ignored_layers", "modules_to_not_convert", "exclude_modules", "exclude")
LISTS_8_BIT = ("llm_int8_skip_modules",)
MAX_ENTRIES = 200_000
MAX_PATTERNS = 64
MAX_LENGTH = 256

# What a pattern may be made of: names, escaped dots, wildcards, numbers, and choices of names.
PIECE = re.compile(
    r"(?P<any>\.\*)|(?P<dot>\\\.)|(?P<digits>\\d\+|\[0-9\]\+)|(?P<one>\.)"
    r"|(?P<choice>\((?:\?:)?[A-Za-z0-9_|]{1,128}\))|(?P<name>[A-Za-z0-9_-]+)",
    re.ASCII,
)
MAX_WILDCARDS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Ignored:
    """Modules that a checkpoint says it left plain."""

    names: frozenset[str] = frozenset()
    pattern: re.Pattern[str] | None = None
    uncertain: bool = False  # there are entries that were not understood

    def has(self, module: str) -> bool:
        """Whether a module is named, in whichever spelling of its beginning."""
        if not self.names and self.pattern is None:
            return False
        parts = module.split(".")
        tails = (".".join(parts[start:]) for start in range(len(parts)))
        heads = (".".join(parts[:end]) for end in range(1, len(parts)))
        named = any(one in self.names for one in (*tails, *heads))
        return named or (self.pattern is not None and self.pattern.match(module) is not None)


def read_ignored(stated: Mapping[str, Any]) -> Ignored:
    """Read every list that some quantizer keeps them in."""
    nested = stated.get("quantization")
    names: set[str] = set()
    patterns: list[str] = []
    uncertain = False
    for part in (stated, nested if isinstance(nested, Mapping) else {}):
        for key in (*LISTS, *LISTS_8_BIT):
            for entry in _entries(part.get(key)):
                spelled = entry.removeprefix("re:")
                if spelled == entry and not set(entry) & set("*?[\\^$("):
                    names.add(entry.removesuffix(".weight"))
                elif (own := _own_pattern(spelled, wild=spelled == entry)) is not None:
                    patterns.append(own)
                else:
                    uncertain = True
    if len(patterns) > MAX_PATTERNS:
        patterns, uncertain = [], True
    pattern = re.compile("|".join(f"(?:{one})" for one in patterns)) if patterns else None
    return Ignored(names=frozenset(names), pattern=pattern, uncertain=uncertain)


def _entries(value: object) -> Iterable[str]:
    listed = value[:MAX_ENTRIES] if isinstance(value, list) else []
    return (entry for entry in listed if isinstance(entry, str) and entry)


def _own_pattern(spelled: str, *, wild: bool) -> str | None:
    """Write a pattern anew from its pieces; None when it has others. `wild`: as a shell's."""
    text = spelled.replace(".", r"\.").replace("*", ".*") if wild else spelled
    text, end = text.removeprefix("^"), ""
    if text.endswith("$") or wild:
        text, end = text.removesuffix("$"), r"\Z"
    if len(text) > MAX_LENGTH:
        return None
    at, pieces, wildcards = 0, [], 0
    while at < len(text):
        piece = PIECE.match(text, at)
        if piece is None:
            return None
        wildcards += piece.lastgroup in ("any", "digits")
        pieces.append("[0-9]{1,9}" if piece.lastgroup == "digits" else piece[0])
        at = piece.end()
    return "".join(pieces) + end if wildcards <= MAX_WILDCARDS else None

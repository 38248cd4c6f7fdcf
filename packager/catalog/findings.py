"""Explanations of finding codes: `data/findings.toml`, and compatibility rules for their own.

A code of the draft's own files is that of the model's with `draft-` before it.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from packager.catalog.compatibility import rules
from packager.core.catalog import Rule
from packager.core.errors import UsageError
from packager.core.share import read_shipped

TABLE = Path(__file__).parent / "data" / "findings.toml"

DRAFT = "draft-"
PLACEHOLDER = re.compile(r"\{(\w+)\}")
ASIDE = re.compile(r" \([^(){}]*\{\w+\}\)")  # "(compute capability {compute_capability})"

# How a rule's placeholders read when there is no situation to take values from.
WORDS = {
    "architecture": "this architecture",
    "checkpoint_format": "such",
    "compile": "this compiler",
    "device_name": "the device",
    "draft": "this draft",
    "engine": "this engine",
    "engine_version": "of this version",
    "instance": "the instance",
    "instance_family": "this instance family",
    "model": "the model",
    "quantize": "this method",
    "release": "of this release",
    "source_quantization": "by its own method",
}

WHY = {
    "error": "The build is refused: it would not start, or be wrong without saying so.",
    "warning": "It may be slow, or is not proven to work.",
    "note": "Nothing breaks; it is good to know.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingExplanation:
    """One code in plain words."""

    code: str
    title: str
    means: str
    why: str
    do: str
    source: str
    link: str = ""


def unknown_code(code: str, nearest: tuple[str, ...]) -> UsageError:
    """Return an error: no finding has that code."""
    guess = f"did you mean {' or '.join(map(repr, nearest))}? " if nearest else ""
    return UsageError(
        f"finding code {code[:60]!r} is not known",
        hint=f"{guess}`packager explain` lists them all",
        code="UnknownCode",
    )


@cache
def explanations() -> dict[str, FindingExplanation]:
    """Return every code's explanation, in alphabetical order."""
    table = read_shipped(TABLE)
    own = {code: FindingExplanation(code=code, **row) for code, row in table.items()}
    ruled = {rule.id: _of_rule(rule) for rule in rules() if rule.id not in own}
    return dict(sorted((own | ruled).items()))


def find_explanation(code: str) -> FindingExplanation:
    """Explain a code."""
    known = explanations()
    for name in (code, code.removeprefix(DRAFT)):
        if name in known:
            return known[name]
    raise unknown_code(code, tuple(difflib.get_close_matches(code, known, n=2)))


def _of_rule(rule: Rule) -> FindingExplanation:
    return FindingExplanation(
        code=rule.id,
        title=rule.id.replace("-", " "),
        means=_plain(rule.reason),
        why=WHY[rule.severity],
        do=_plain(rule.instead),
        source=f"{rule.source} ({rule.date})",
        link=rule.link,
    )


def _plain(text: str) -> str:
    """Write a rule's sentence without a situation."""
    brief = ASIDE.sub("", text)
    said = PLACEHOLDER.sub(lambda match: WORDS.get(match[1], match[1].replace("_", " ")), brief)
    first = said.partition(" ")[0]  # vLLM, llm-compressor and option.quantize stay as they are
    capital = said[:1].upper() if first.isalpha() and first.islower() else said[:1]
    return capital + said[1:].rstrip(".") + "."

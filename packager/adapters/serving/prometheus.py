"""Reads the text that servers give of their metrics (Prometheus' exposition format 0.0.4).

prometheus.io/docs/instrumenting/exposition_formats: a line is a name, labels in
braces with `\\\\`, `\\"` and `\\n` escaped, a number, and perhaps a time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

_LINE = re.compile(
    r"(?P<name>[A-Za-z_:][A-Za-z0-9_:]*)"
    r"(?:\{(?P<labels>(?:[^\"{}]|\"(?:[^\"\\]|\\.)*\")*)\})?"
    r"[ \t]+(?P<value>\S+)(?:[ \t]+-?\d+)?[ \t]*"
)
_LABEL = re.compile(r"(?P<name>[A-Za-z_][A-Za-z0-9_]*)[ \t]*=[ \t]*\"(?P<value>(?:[^\"\\]|\\.)*)\"")
_ESCAPE = re.compile(r"\\(.)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One number of one metric."""

    name: str
    labels: Mapping[str, str]
    value: float


def read_metrics(text: str) -> Iterator[Reading]:
    """Yield every number. Raises `ValueError` for a line of another form."""
    for line in text.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        matched = _LINE.fullmatch(line)
        if matched is None:
            raise ValueError(f"no metric: {line[:100]!r}")
        labels = {
            found["name"]: _ESCAPE.sub(_unescaped, found["value"])
            for found in _LABEL.finditer(matched["labels"] or "")
        }
        yield Reading(name=matched["name"], labels=labels, value=float(matched["value"]))


def _unescaped(found: re.Match[str]) -> str:
    return "\n" if found[1] == "n" else found[1]

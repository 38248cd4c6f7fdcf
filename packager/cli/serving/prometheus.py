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
_BETWEEN = re.compile(r"[ \t]*(?:,[ \t]*|$)")
_LONGEST_LINE = 64 * 1024  # characters


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One number of one metric."""

    name: str
    labels: Mapping[str, str]
    value: float


def read_metrics(text: str, starts: tuple[str, ...] = ("",)) -> Iterator[Reading]:
    """Yield every number of the metrics whose names start with one of `starts`.

    Raises `ValueError` for a line of another form; lines of other metrics are skipped.
    """
    for line in text.splitlines():
        if not line.startswith(starts) or not line.strip() or line.startswith("#"):
            continue
        matched = _LINE.fullmatch(line) if len(line) <= _LONGEST_LINE else None
        if matched is None:
            raise ValueError(f"no metric: {line[:100]!r}")
        labels = _labels(matched["labels"] or "", line)
        yield Reading(name=matched["name"], labels=labels, value=float(matched["value"]))


def _labels(text: str, line: str) -> dict[str, str]:
    """Parse labels one after another; searching for the next one would take quadratic time."""
    labels: dict[str, str] = {}
    at = len(text) - len(text.lstrip(" \t"))
    while at < len(text):
        found = _LABEL.match(text, at)
        gap = _BETWEEN.match(text, found.end()) if found else None
        if found is None or gap is None:
            raise ValueError(f"no metric: {line[:100]!r}")
        labels[found["name"]] = _ESCAPE.sub(_unescaped, found["value"])
        at = gap.end()
    return labels


def _unescaped(found: re.Match[str]) -> str:
    return "\n" if found[1] == "n" else found[1]

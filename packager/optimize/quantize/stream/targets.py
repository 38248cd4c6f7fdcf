"""Patterns by which readers of a checkpoint find the modules of one group, and none of another.

`containers/tools/llmcompressor/mixing.py` writes the same ones, of the names of the source and of
the model that it loads; here are those of the source.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

_NUMBER = re.compile(r"(?:(?<=\.)|^)\d+(?=\.|$)")  # of a layer or an expert


def patterns_of(own: Iterable[str], others: Iterable[str]) -> Iterator[str]:
    """Yield a pattern for names that differ in numbers alone, unless others differ so, too."""
    alike: dict[str, list[str]] = {}
    for name in own:
        alike.setdefault(_kind(name), []).append(name)
    taken: dict[str, set[str]] = {}
    for name in others:
        taken.setdefault(_kind(name), set()).add(_layer(name))
    for kind, names in alike.items():
        layers = {_layer(name) for name in names}
        if kind not in taken:
            yield _pattern(kind, ())
        elif layers & taken[kind]:
            yield from names  # some experts of a layer: nothing but their names tells them apart
        else:
            yield _pattern(kind, layers)


def _pattern(kind: str, layers: Iterable[str]) -> str:
    numbers = sorted(layers, key=int)
    spelled = re.escape(kind).replace(r"\#", r"\d+")
    if numbers:
        spelled = spelled.replace(r"\d+", f"(?:{'|'.join(numbers)})", 1)
    return rf"re:(?:.*\.)?{spelled}$"


def _kind(name: str) -> str:
    return _NUMBER.sub("#", _below(name))


def _layer(name: str) -> str:
    found = _NUMBER.search(_below(name))
    return found[0] if found else ""


def _below(name: str) -> str:
    """Return a name from the list of layers on: engines and libraries differ in what is above."""
    steps = name.split(".")
    place = next((at for at, step in enumerate(steps) if step.isdecimal()), len(steps))
    return ".".join(steps[max(0, place - 1) :])

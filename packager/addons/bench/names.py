"""Shortest distinct names of variants."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

from packager.core.bench import BenchLoad
from packager.core.reports.cells import cell_width, fitted

WIDEST = 32  # cells of a short name
_BEGINNING = 10  # cells of it that are kept of a longer one, with the dots
_SEPARATOR = re.compile(r"[/:@=]")


def short_names(names: Sequence[str]) -> tuple[str, ...]:
    """Return names without their paths and what all begin with; the whole ones are in the set-up.

    Only whole parts of a name are left out, and none is left empty.  Names that would be equal
    once they are cut get a number.
    """
    ends = [name[name.rfind("/", 0, len(name) - 1) + 1 :] for name in names]
    parts = ends if len(set(ends)) == len(ends) else list(names)
    start = _shared_start(parts) if len(parts) > 1 else 0
    short = [_cut(name[start:]) for name in parts]
    return tuple(
        f"{name} ({short[:at].count(name) + 1})" if short.count(name) > 1 else name
        for at, name in enumerate(short)
    )


def load_name(load: BenchLoad) -> str:
    """Return how hard a server was pressed, for a cell: `8`, `2.5/s`."""
    return f"{load.rate:g}/s" if load.rate else f"{load.concurrency}"


def load_words(load: BenchLoad) -> str:
    """Return how hard a server was pressed, for a sentence: `8 requests at once`."""
    if load.rate:
        return f"{load.rate:g} requests a second"
    many = "request" if load.concurrency == 1 else "requests"
    return f"{load.concurrency} {many} at once"


def same_load(one: BenchLoad, other: BenchLoad) -> bool:
    """Whether both were pressed equally."""
    return (one.concurrency, one.rate) == (other.concurrency, other.rate)


def _cut(name: str) -> str:
    """Leave out the middle of a long name: tags and addresses differ at their ends."""
    if cell_width(name) <= WIDEST:
        return name
    end = fitted(name[::-1], WIDEST - _BEGINNING, "")[::-1]
    return fitted(name, _BEGINNING) + end


def _shared_start(names: Sequence[str]) -> int:
    same = itertools.takewhile(lambda letters: len(set(letters)) == 1, zip(*names, strict=False))
    shared = "".join(letters[0] for letters in same)
    start = max((found.end() for found in _SEPARATOR.finditer(shared)), default=0)
    # A number alone names nothing: `shop:1` beside `shop:int8` stays.
    return start if all(name[start:].strip("0123456789.") for name in names) else 0

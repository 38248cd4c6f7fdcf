"""Models as data: `data/models/NAME.json` has config.json and the headers of a checkpoint.

A tensor's name stands for many: `{0-31}` for each number, `{gate|up}` for each word.  Its row is
the element type and the shape.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from tests.support.places import DATA

Headers = dict[str, tuple[str, tuple[int, ...]]]


@cache
def read_layout(name: str) -> Mapping[str, Any]:
    """Read one file: `config`, and `tensors` where a checkpoint is described."""
    layout: dict[str, Any] = json.loads((DATA / "models" / f"{name}.json").read_text("utf-8"))
    return layout


def config_of(name: str) -> dict[str, Any]:
    return dict(read_layout(name)["config"])


def headers_of(name: str, part: str = "tensors") -> Headers:
    """Write out the tensors of a model, one by one."""
    return write_out(read_layout(name)[part])


def write_out(rows: Mapping[str, list[Any]], **sizes: int) -> Headers:
    """Write out rows one by one; a size may be one of `sizes`, or reckoned of them: `inputs/8`."""
    return {
        name: (dtype, tuple(reckon(one, sizes) for one in shape))
        for pattern, (dtype, *shape) in rows.items()
        for name in expand(pattern)
    }


def reckon(written: int | str, sizes: Mapping[str, int]) -> int:
    """Reckon `outputs*inputs/64`, from left to right, each quotient rounded up."""
    size = 1
    for sign, part in re.findall(r"([*/]?)(\w+)", str(written)):
        number = sizes.get(part) or int(part)
        size = -(-size // number) if sign == "/" else size * number
    return size


def expand(pattern: str) -> Iterator[str]:
    """Give every name that a pattern stands for, the last part varying fastest."""
    parts = re.split(r"\{(.*?)\}", pattern)
    choices = [tuple(_choices(part)) if place % 2 else (part,) for place, part in enumerate(parts)]
    return map("".join, itertools.product(*choices))


def _choices(text: str) -> Iterator[str]:
    for part in text.split("|"):
        first, _, last = part.partition("-")
        if last:
            yield from map(str, range(int(first), int(last) + 1))
        else:
            yield part

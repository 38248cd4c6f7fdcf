"""One measured point as people write it: `TPOT 17.9 ms at 16, 8xB200`.

    TPOT <time> ms|s|us at <requests at once> [, <instance or devices>] [, TP <degree>]
         [, <tokens in>:<tokens out>]

Parts after the first come in any order, each at most once.
"""

from __future__ import annotations

import re

from packager.core.documents import shorten
from packager.core.errors import UsageError
from packager.core.measurement import MeasuredLoad, MeasuredRun, MeasuredSetup

FORM = "TPOT 17.9 ms at 16, 8xB200, TP 8, 1000:1000"
UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6}
MOST = 1_000_000  # requests at once, tokens

STARTS = re.compile(r"\s*tpot\s*[=:]?\s+[\d=]", re.IGNORECASE)
POINT = re.compile(
    r"tpot\s*[=:]?\s*(\d{1,9}(?:\.\d{1,9})?)\s*(ms|us|s)\s+at\s+(\d{1,7})(?:\s+requests?)?",
    re.IGNORECASE,
)
DEGREE = re.compile(r"tp\s*=?\s*(\d{1,3})", re.IGNORECASE)
LENGTHS = re.compile(r"(\d{1,7}):(\d{1,7})")
PLACE = re.compile(r"(?:\d{1,2}\s*x\s*)?[a-z][a-z0-9 ._-]{1,60}", re.IGNORECASE)


def unreadable_point(text: str, what: str) -> UsageError:
    """Return an error: a measured point is written in another form."""
    return UsageError(
        f"{shorten(text, 200)} is no measured point: {what}",
        hint=f"write {FORM}",
        code="UnreadablePoint",
    )


def is_point(text: str) -> bool:
    """Return whether a text states a point instead of a file."""
    return STARTS.match(text) is not None


def parse_point(text: str) -> MeasuredRun:
    """Return the point that a text states; raise `unreadable_point` for other forms."""
    first, *rest = (part.strip() for part in text.split(","))
    point = POINT.fullmatch(first)
    if point is None:
        raise unreadable_point(text, f"expected a time and how many at once, got {first!r}")
    time_s, concurrency = float(point[1]) * UNITS[point[2].lower()], int(point[3])
    if not time_s or not 1 <= concurrency <= MOST:
        raise unreadable_point(text, f"expected a positive time at 1 to {MOST:,} requests")
    values = {}
    for part in rest:
        kind, value = _part(text, part)
        if kind in values:
            raise unreadable_point(text, f"{part!r} says the {kind} once more")
        values[kind] = value
    lengths = values.get("lengths")
    tokens = [float(size) for size in lengths.split(":")] if lengths else [None, None]
    return MeasuredRun(
        source=text.strip(),
        setup=MeasuredSetup(
            instance=values.get("place", ""),
            tp_degree=int(values["degree"]) if "degree" in values else None,
        ),
        loads=(
            MeasuredLoad(
                concurrency=concurrency,
                tpot_s=time_s,
                input_tokens=tokens[0],
                output_tokens=tokens[1],
            ),
        ),
    )


def _part(text: str, part: str) -> tuple[str, str]:
    """Return the field and the value of a further part."""
    if (degree := DEGREE.fullmatch(part)) and int(degree[1]):
        return "degree", degree[1]
    if (lengths := LENGTHS.fullmatch(part)) and int(lengths[1]) and int(lengths[2]):
        return "lengths", part
    if not DEGREE.fullmatch(part) and PLACE.fullmatch(part):
        return "place", part
    raise unreadable_point(
        text, f"expected an instance or devices, a degree or lengths, got {part!r}"
    )

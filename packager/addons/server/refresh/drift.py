"""Whether the traffic has left what a head has learned, by readings of its counters. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import Field

from packager.core.strict_models import StrictDocument

KEPT = 100  # readings
_COSTS = 1.1  # accepted length below which a draft takes longer than it gains


class DriftRules(StrictDocument):
    """When accepted length is so much lower that a turn begins; each run is a reading."""

    below: Annotated[float, Field(gt=0, le=1)] = 0.9  # of the length at its roll-out
    readings: Annotated[int, Field(ge=1, le=50)] = 4  # the last ones
    of_them: Annotated[int, Field(ge=1, le=50)] = 3  # that are below
    drafts: Annotated[int, Field(ge=1)] = 1000  # between two readings, at least


def added(readings: Sequence[Mapping[str, Any]], drafts: int, accepted: int) -> list[Any]:
    """Return the readings with today's, the oldest ones left out."""
    return [*readings, {"drafts": drafts, "accepted": accepted}][-KEPT:]


def lengths(readings: Sequence[Mapping[str, Any]], least: int) -> list[float]:
    """Return the accepted lengths between readings; fewer drafts wait for the next one.

    Counters that fell are those of a server that started again.
    """
    found: list[float] = []
    drafts = accepted = 0
    for one in readings:
        if one["drafts"] < drafts or one["accepted"] < accepted:
            drafts = accepted = 0
        if one["drafts"] - drafts >= least:
            found.append(1 + (one["accepted"] - accepted) / (one["drafts"] - drafts))
            drafts, accepted = one["drafts"], one["accepted"]
    return found


def has_drifted(readings: Sequence[Mapping[str, Any]], reference: float, rules: DriftRules) -> bool:
    """Return whether enough of the last lengths are below the one at the roll-out."""
    last = lengths(readings, rules.drafts)[-rules.readings :]
    return sum(one < rules.below * reference for one in last) >= rules.of_them


def costs(readings: Sequence[Mapping[str, Any]], rules: DriftRules) -> bool:
    """Return whether the last length is so low that no draft were faster."""
    return any(one < _COSTS for one in lengths(readings, rules.drafts)[-1:])

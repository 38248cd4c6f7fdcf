"""Dominating matches: an artifact compiled for more than was asked can serve less.

Only on request, because the artifact then decides the configuration: what is
larger must be rendered as it is in the artifact, and costs memory and time that
was not asked for.  So a match always says what is effective.  Which artifact
serves which request is a `LargerRule`'s matter.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from artifact_cache.entry import Entry
from artifact_cache.explain import Difference, differences
from artifact_cache.kinds import LargerRule


@dataclass(frozen=True, slots=True)
class Match:
    """A larger entry, and every value of it that differs from what was asked."""

    entry: Entry
    effective: tuple[Difference, ...]  # `found` is what has to be rendered


def find_larger(
    wanted: Mapping[str, Any], entries: Iterable[Entry], rule: LargerRule
) -> Match | None:
    """Return the entry that serves what is wanted at the lowest cost; None without one.

    Of entries that cost the same the newest is used, then the one with the
    smallest key, so that everybody chooses the same.
    """
    fitting = [entry for entry in entries if dominates(entry.keydoc, wanted, rule)]
    if not fitting:
        return None
    best = min(
        fitting, key=lambda entry: (rule.cost(entry.keydoc[rule.field]), -entry.built_at, entry.key)
    )
    return Match(best, tuple(differences(wanted, best.keydoc)))


def dominates(larger: Mapping[str, Any], wanted: Mapping[str, Any], rule: LargerRule) -> bool:
    """Report whether an artifact of `larger` serves what `wanted` asks for, and is not the same."""
    if rule.field not in larger or rule.field not in wanted:
        return False
    if _same(larger, wanted) or not _same(_but(larger, rule.field), _but(wanted, rule.field)):
        return False
    return rule.covers(larger[rule.field], wanted[rule.field])


def _same(one: object, other: object) -> bool:
    return not any(True for _ in differences(one, other))


def _but(document: Mapping[str, Any], left_out: str) -> dict[str, Any]:
    return {name: value for name, value in document.items() if name != left_out}

"""When a head's traffic has left it, by readings of counters that start again with a server."""

from __future__ import annotations

from packager.addons.server.refresh.drift import (
    KEPT,
    DriftRules,
    added,
    costs,
    has_drifted,
    lengths,
)
from tests.support.cases import cases_of

cases = cases_of(__file__)

RULES = DriftRules(drafts=100)


def readings(*told: list[int]) -> list[dict[str, int]]:
    return [{"drafts": drafts, "accepted": accepted} for drafts, accepted in told]


@cases("lengths")
def test_lengths_are_of_what_came_between(told: list[list[int]], expected: list[float]) -> None:
    assert lengths(readings(*told), 100) == expected


@cases("drifts")
def test_most_of_the_last_lengths_must_be_lower(accepted: list[int], drifted: bool) -> None:
    told = [[100 * number, sum(accepted[:number])] for number in range(1, len(accepted) + 1)]
    assert has_drifted(readings(*told), 2.0, RULES) is drifted


def test_a_draft_that_is_hardly_accepted_costs() -> None:
    assert costs(readings([100, 80], [200, 85]), RULES)
    assert not costs(readings([100, 5], [200, 85]), RULES)
    assert not costs([], RULES)


def test_old_readings_are_left_out() -> None:
    found: list[dict[str, int]] = []
    for number in range(KEPT + 5):
        found = added(found, number, 0)
    assert (len(found), found[0]["drafts"], found[-1]["drafts"]) == (KEPT, 5, KEPT + 4)

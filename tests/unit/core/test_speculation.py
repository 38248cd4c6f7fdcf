"""What may be demanded of a draft, and what is said where it is not met."""

from __future__ import annotations

import json
from typing import Any

from packager.core.speculation import Demands, Sameness
from tests.support.cases import cases
from tests.support.report_values import load_figures, speculation_report


@cases("what_is_missed_is_said_with_the_figure")
def test_what_is_missed_has_its_figure(demanded: dict[str, Any], missed: list[str]) -> None:
    assert list(Demands(**demanded).missed_by(speculation_report())) == missed


@cases("no_figures")
def test_no_figure_is_no_pass(demanded: dict[str, Any], changes: str, missed: list[str]) -> None:
    report = speculation_report(**json.loads(changes))

    assert list(Demands(**demanded).missed_by(report)) == missed


def test_without_a_plain_server_there_is_no_speed_up() -> None:
    speeds = tuple(
        speed.model_copy(update={"plain": None, "speedup": None})
        for speed in speculation_report().speeds[:1]
    )

    missed = list(Demands(min_speedup=0.5).missed_by(speculation_report(speeds=speeds)))

    assert missed == ["speed-up (no number) at concurrency 1 is under 0.5"]


@cases("an_answer_and_none_are_not_identical")
def test_an_answer_and_none_are_unlike(failed: int, plain_failed: int, missed: list[str]) -> None:
    alone = speculation_report().speeds[0]
    loads = {
        "speculative": load_figures(requests=8, failed=failed),
        "plain": load_figures(requests=8, failed=plain_failed),
    }
    report = speculation_report(
        speeds=(alone.model_copy(update=loads),), sameness=Sameness(compared=6, identical=6)
    )

    assert list(Demands(identical="ties").missed_by(report)) == missed


@cases("ties_are_allowed_and_counted_except_strictly")
def test_ties_are_allowed_and_counted_except_strictly(
    ties: int, unknown: int, identical: Any, missed: list[str]
) -> None:
    alone = speculation_report().speeds[:1]
    same = Sameness(compared=8, identical=6, ties=ties, unknown=unknown)
    report = speculation_report(speeds=alone, sameness=same)

    assert list(Demands(identical=identical).missed_by(report)) == missed

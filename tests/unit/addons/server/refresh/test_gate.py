"""The gate: what is better by intervals, what is worse, and what is not decided."""

from __future__ import annotations

from typing import Any

import pytest

from packager.addons.server.refresh.gate import (
    GateRules,
    HeadComparison,
    PromptPair,
    RoundPair,
    decide,
)
from tests.support.cases import cases_of

cases = cases_of(__file__)


def pairs(ratio: float, spread: float, count: int, group: str = "chat, short") -> list[PromptPair]:
    """Return prompts whose ratios are a mean with as much above as below."""
    signs = [1 if number % 2 else -1 for number in range(count)]
    return [
        PromptPair(group=group, old=2.0, new=2.0 * ratio * (1 + spread * sign)) for sign in signs
    ]


def speeds(ratio: float, spread: float = 0.01, **more: Any) -> list[RoundPair]:
    made = []
    for number, load in enumerate((1, 1, 1, 4, 4, 4)):
        rate = 100.0 * ratio * (1 + spread * (number % 3 - 1))
        figures: dict[str, Any] = {
            "concurrency": load,
            "old_rate": 100.0,
            "new_rate": rate,
            "plain_rate": 80.0,
            "old_first_s": 0.1,
            "new_first_s": 0.1 * (1 + spread * (number % 3 - 1)),
        }
        made.append(RoundPair(**{**figures, **more}))
    return made


def compared(
    prompts: list[PromptPair], rounds: list[RoundPair], different: int = 0
) -> HeadComparison:
    return HeadComparison(
        prompts=tuple(prompts), rounds=tuple(rounds), compared=40, different=different
    )


@cases("decisions")
def test_a_head_serves_only_if_every_figure_is_better_by_its_interval(
    length: list[float], speed: list[float], decision: str, different: int
) -> None:
    ratio, spread, count = length
    found = compared(pairs(ratio, spread, int(count)), speeds(*speed), different)

    assert decide(found, GateRules()).decision == decision


def test_the_worst_set_decides_and_small_sets_do_not() -> None:
    good, bad = pairs(1.3, 0.05, 200), pairs(0.8, 0.05, 60, "tools, long")
    rules = GateRules()

    worse = decide(compared([*good, *bad], speeds(1.2)), rules)
    assert worse.decision == "no"
    assert [one.name for one in worse.checks if one.state == "no"] == ["set tools, long"]
    assert decide(compared([*good, *bad[:20]], speeds(1.2)), rules).decision == "yes"


def test_the_general_set_decides_however_small_it_is() -> None:
    prompts = [*pairs(1.3, 0.05, 200), *pairs(0.8, 0.02, 8, "general")]
    verdict = decide(compared(prompts, speeds(1.2)), GateRules())
    assert [one.name for one in verdict.checks if one.state == "no"] == ["set general"]


def test_a_slow_first_token_decides() -> None:
    verdict = decide(compared(pairs(1.3, 0.05, 60), speeds(1.2, new_first_s=0.2)), GateRules())
    names = [one.name for one in verdict.checks if one.state == "no"]
    assert names == ["first token at 1", "first token at 4"]


def test_a_head_that_costs_against_none_is_said_to() -> None:
    verdict = decide(compared(pairs(1.3, 0.05, 60), speeds(1.2, plain_rate=200.0)), GateRules())
    assert (verdict.decision, verdict.draft_costs) == ("no", True)


def test_nothing_measured_decides_nothing() -> None:
    verdict = decide(compared([], []), GateRules(identical=False))
    assert verdict.decision == "not decided"


def test_intervals_are_of_logarithms_over_prompts() -> None:
    found = [PromptPair(group="a", old=1.0, new=new) for new in (1.1, 1.2, 1.3)]
    check = decide(compared(found, []), GateRules()).checks[0]

    # logarithms 0.0953, 0.1823, 0.2624: mean 0.1800, deviation 0.0836, t of two degrees 4.303
    assert check.mean == pytest.approx(0.19722, abs=1e-4)
    assert check.low == pytest.approx(-0.02718, abs=1e-4)
    assert check.state == "not decided"

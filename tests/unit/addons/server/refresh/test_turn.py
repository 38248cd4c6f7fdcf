"""What comes next in a turn, after every kill, and how turns end."""

from __future__ import annotations

from typing import Any

from packager.addons.server.refresh.turn import (
    STAGES,
    HeadTurn,
    TurnEntry,
    last_data,
    length_served,
    open_turn,
    serving_head,
    turns_of,
)
from tests.support.cases import cases_of

cases = cases_of(__file__)

RESULTS: dict[str, dict[str, Any]] = {
    "collect": {"enough": True, "digest": "sha256:1"},
    "train": {"head": "/turns/1/head"},
    "gate": {"decision": "yes"},
    "watch": {"verdict": "worse"},
}


def entries(*told: str, turn: int = 1, **changed: Any) -> list[TurnEntry]:
    """Return entries written as `STAGE begun`; results are those above."""
    made = []
    for text in told:
        stage, _, state = text.rpartition(" ")
        result = {**RESULTS, **changed}.get(stage, {}) if state == "done" else {"reason": "disk"}
        made.append(
            TurnEntry(turn=turn, stage=stage, state=state, at="2026-12-01", result=result)  # type: ignore[arg-type]
        )
    return made


@cases("next")
def test_a_turn_goes_on_where_it_was(told: list[str], stage: str, outcome: str) -> None:
    (turn,) = turns_of(entries(*told))

    assert (turn.next_stage or "", turn.outcome) == (stage, outcome)


@cases("ends")
def test_a_turn_ends_by_what_was_decided(results: dict[str, Any], outcome: str) -> None:
    (turn,) = turns_of(entries(*(f"{stage} done" for stage in results), **results))

    assert turn.outcome == outcome
    assert turn.next_stage is None


def test_what_is_done_is_never_done_again_and_never_decided_anew() -> None:
    told = entries("collect done", "train begun", "train done")
    later = entries("train begun", "train done", train={"head": "/another"})

    (turn,) = turns_of([*told, *later])

    assert turn.results["train"]["head"] == "/turns/1/head"
    assert turn.next_stage == "build"


def test_a_failure_is_shown_until_the_stage_is_done() -> None:
    (failed,) = turns_of(entries("collect begun", "collect failed"))
    (done,) = turns_of(entries("collect failed", "collect done"))
    assert (failed.failure, done.failure) == ("disk", "")


def served(number: int, head: str) -> HeadTurn:
    done = [f"{stage} done" for stage in STAGES[:-1]]
    results = {"train": {"head": head}, "watch": {"verdict": "well"}}
    return turns_of(entries(*done, turn=number, **results))[0]


def test_the_next_turn_trains_from_the_head_that_serves() -> None:
    kept = turns_of(entries("collect done", "train done", "gate done", turn=2, gate={}))[0]

    assert serving_head([], "first") == "first"
    assert serving_head([served(1, "/1"), kept], "first") == "/1"
    assert open_turn([served(1, "/1"), kept]).number == 3
    assert open_turn([served(1, "/1")]).results == {}
    assert last_data([served(1, "/1")]) == "sha256:1"
    assert last_data(turns_of(entries("collect done"))) == ""


def test_a_head_that_was_taken_back_later_serves_no_more() -> None:
    stages = [f"{stage} done" for stage in STAGES]
    back = turns_of(entries(*stages, turn=2, watch={"verdict": "well"}))[0]
    assert back.outcome == "back"
    assert serving_head([served(1, "/1"), back], "") == "/1"


def test_a_turn_without_traffic_is_asked_again_under_its_number() -> None:
    waited = entries("collect begun", "collect done", collect={"enough": False})
    (turn,) = turns_of(waited)
    assert (turn.outcome, open_turn([turn]).number, open_turn([turn]).outcome) == ("waits", 1, "")

    (later,) = turns_of([*waited, *entries("collect begun", "collect done")])
    assert later.next_stage == "train"


def test_the_length_in_traffic_is_that_of_the_head_that_serves() -> None:
    watch = {"verdict": "well", "after": {"length": 2.5}}
    stages = [f"{stage} done" for stage in STAGES[:-1]]
    turn = turns_of(entries(*stages, watch=watch))[0]
    assert (length_served([turn]), length_served([])) == (2.5, None)

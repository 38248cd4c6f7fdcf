"""What a turn of a head has done, and what comes next. Pure.

A turn is the list of its entries: a stage is begun, then done with its result.  A stage that was
begun and not done is done again; each may be.  What is decided once stays decided.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal, get_args

Stage = Literal["collect", "train", "build", "measure", "gate", "roll-out", "watch", "back"]
STAGES: tuple[Stage, ...] = get_args(Stage)
Outcome = Literal["", "waits", "kept", "served", "back"]  # "": the turn goes on
EXPLAINED: Mapping[Outcome, str] = {
    "": "it goes on",
    "waits": "there was not enough new traffic",
    "kept": "the head that served goes on: the new one is not better by its intervals",
    "served": "the new head serves",
    "back": "the new head was worse while it served, and the one before it serves again",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnEntry:
    """A line of the journal."""

    turn: int
    stage: Stage
    state: Literal["begun", "done", "failed"]
    at: str  # UTC
    result: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadTurn:
    """What is known of a turn."""

    number: int
    results: Mapping[Stage, Mapping[str, Any]]  # of the stages that are done, in their order
    failure: str = ""  # of the stage that comes next, when it was last tried
    began: str = ""  # UTC

    @property
    def outcome(self) -> Outcome:
        """Return how the turn ended; "" while it goes on."""
        done = self.results
        if "back" in done:
            return "back"
        if "collect" in done and not done["collect"].get("enough"):
            return "waits"
        if "gate" in done and done["gate"].get("decision") != "yes":
            return "kept"
        if done.get("roll-out", {}).get("left"):
            return "kept"
        is_well = done.get("watch", {}).get("verdict") == "well"
        return "served" if is_well else ""

    @property
    def next_stage(self) -> Stage | None:
        """Return the stage that comes next; None after the last."""
        if self.outcome:
            return None
        return next((stage for stage in STAGES if stage not in self.results), None)

    @property
    def may_have_moved(self) -> bool:
        """Return whether the new head may serve already, or has."""
        return "gate" in self.results and self.results["gate"].get("decision") == "yes"


def turns_of(entries: Iterable[TurnEntry]) -> tuple[HeadTurn, ...]:
    """Return the turns of a journal, the first one first."""
    found: dict[int, HeadTurn] = {}
    for entry in entries:
        turn = found.get(entry.turn) or HeadTurn(number=entry.turn, results={}, began=entry.at)
        results, failure = turn.results, turn.failure
        is_new = entry.stage not in results or turn.outcome == "waits"
        if entry.state == "done" and is_new:
            results, failure = {**results, entry.stage: entry.result}, ""
        elif entry.state == "failed":
            failure = str(entry.result.get("reason", ""))
        found[entry.turn] = HeadTurn(
            number=entry.turn, results=results, failure=failure, began=turn.began
        )
    return tuple(found[number] for number in sorted(found))


def open_turn(turns: Iterable[HeadTurn]) -> HeadTurn:
    """Return the turn that goes on, or the next one."""
    known = list(turns)
    if known and not known[-1].outcome:
        return known[-1]
    if known and known[-1].outcome == "waits":  # it is asked again, under its number
        return HeadTurn(number=known[-1].number, results={})
    return HeadTurn(number=known[-1].number + 1 if known else 1, results={})


def serving_head(turns: Iterable[HeadTurn], first: str) -> str:
    """Return the head that serves: that of the last turn which was rolled out for good."""
    served = [turn for turn in turns if turn.outcome == "served"]
    return str(served[-1].results["train"]["head"]) if served else first


def length_served(turns: Iterable[HeadTurn]) -> float | None:
    """Return the accepted length in traffic of the head that serves, when it was rolled out."""
    served = [turn for turn in turns if turn.outcome == "served"]
    after = (served[-1].results["watch"].get("after") or {}) if served else {}
    return after.get("length")


def last_data(turns: Iterable[HeadTurn]) -> str:
    """Return the digest of the traffic that was last trained on; "" before any."""
    trained = [turn for turn in turns if "train" in turn.results]
    return str(trained[-1].results["collect"].get("digest", "")) if trained else ""

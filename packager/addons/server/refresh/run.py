"""Turns from one stage to the next: what is done is in the journal before anything follows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from packager.addons.server.refresh.drift import added, costs, has_drifted, lengths
from packager.addons.server.refresh.journal import RefreshJournal
from packager.addons.server.refresh.turn import (
    STAGES,
    HeadTurn,
    Stage,
    last_data,
    length_served,
    open_turn,
    serving_head,
)
from packager.core.errors import NotFound, PackagerError

if TYPE_CHECKING:
    from packager.addons.server.refresh.work import RefreshWork


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadRefresh:
    """A deployment's turns and what carries them out."""

    journal: RefreshJournal
    work: RefreshWork

    def run(self, until: Stage | None = None) -> HeadTurn:
        """Go on with the turn that is open, or begin one; return it where it ends or `until`."""
        with self.journal.locked():
            turn = self.turn()
            while (stage := turn.next_stage) is not None:
                self._do(turn, stage)
                turn = self.turn_of(turn.number)
                if stage == until:
                    break
            return turn

    def turn(self) -> HeadTurn:
        """Return the turn that is open, or a new one."""
        return open_turn(self.journal.turns())

    def turn_of(self, number: int) -> HeadTurn:
        """Return a turn by its number."""
        return next(one for one in self.journal.turns() if one.number == number)

    def take_back(self) -> HeadTurn:
        """Serve the image before the last roll-out again; raise `NotFound` without one."""
        with self.journal.locked():
            turns = [one for one in self.journal.turns() if one.may_have_moved]
            if not turns or turns[-1].outcome == "back":
                raise NotFound(
                    "no head was rolled out that could be taken back",
                    hint="`packager draft refresh FILE --status` lists the turns",
                )
            self._do(turns[-1], "back")
            return self.turn_of(turns[-1].number)

    def _do(self, turn: HeadTurn, stage: Stage) -> None:
        self.journal.add(turn.number, stage, "begun")
        self.work.say(f"turn {turn.number}: {stage}")
        try:
            result = self._stages()[stage](turn)
        except PackagerError as error:
            self.journal.add(turn.number, stage, "failed", {"reason": error.message})
            raise
        self.journal.add(turn.number, stage, "done", result)

    def _collect(self, turn: HeadTurn) -> dict[str, Any]:
        """Collect, unless turns begin by drift alone, and the head that serves does well."""
        work, turns = self.work, self.journal.turns()
        rules, reference = work.spec.drift, length_served(turns)
        if rules is not None and reference is not None:
            now = work.figures()
            readings = self.journal.readings()
            if now is not None:
                readings = added(readings, now.drafts, now.accepted)
                self.journal.keep_readings(readings)
            drift: dict[str, Any] = {"lengths": lengths(readings, rules.drafts)[-rules.readings :]}
            drift |= {"reference": reference, "costs": costs(readings, rules)}
            if not has_drifted(readings, reference, rules):
                return {"enough": False, "drift": drift}
            return {**work.collect(self.journal.turn_folder(turn.number), ""), "drift": drift}
        return work.collect(self.journal.turn_folder(turn.number), last_data(turns))

    def _stages(self) -> dict[Stage, Callable[[HeadTurn], dict[str, Any]]]:
        work = self.work

        def head(turn: HeadTurn) -> str:
            before = [one for one in self.journal.turns() if one.number < turn.number]
            return serving_head(before, work.spec.head)

        def folder(turn: HeadTurn) -> Any:
            return self.journal.turn_folder(turn.number)

        stages: dict[Stage, Callable[[HeadTurn], dict[str, Any]]] = {
            "collect": self._collect,
            "train": lambda turn: work.train(folder(turn), head(turn)),
            "build": lambda turn: work.build(turn.number, str(turn.results["train"]["head"])),
            "measure": lambda turn: work.measure(folder(turn), turn),
            "gate": lambda turn: work.gate(folder(turn)),
            "roll-out": work.roll_out,
            "watch": work.watch,
            "back": work.back,
        }
        assert tuple(stages) == STAGES
        return stages

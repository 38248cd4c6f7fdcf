"""Estimate of a step's remaining time, from the units of work that it has finished.

A step has stages that cost differently, and units of a stage (layers of a model, texts, steps
of a training) that cost about the same.  Time left is the remaining units at the pace of the
finished ones, and the later stages as estimated, corrected by the estimate's error so far.
Without a clock of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

from packager.core.events import StageEstimate

MOST_CORRECTION = 10.0
_LEAST_S = 1.0  # of estimated work behind a correction


@dataclass(slots=True)
class _Stage:
    """A running stage: its estimate, start, and its first and latest finished units."""

    estimate: StageEstimate
    began: float
    first: tuple[float, float] | None = None  # when, and how much of the stage's work was done
    last: tuple[float, float] | None = None


@dataclass(slots=True)
class TimeLeft:
    """Follows one step. Not for several threads at once."""

    stages: tuple[StageEstimate, ...] = ()
    _now: _Stage | None = None
    _next: int = 0  # the first of `stages` that has not begun
    _took: float = 0.0  # by stages that are over and were estimated
    _estimated: float = 0.0  # the same, as estimated

    def take(self, now: float, stage: str, done: float, total: float) -> None:
        """Record the finished units of a stage; 0 of 0 where they are not counted."""
        current = self._now
        if current is None or not _is(current.estimate, stage):
            self._begin(now, stage)
            current = self._now
        if current is None or total <= 0 or done <= 0:
            return
        share = share_done(current.estimate, done, total)
        if current.first is None:
            current.first = (now, share)
        current.last = (now, share)

    def left(self, now: float) -> float | None:
        """Return the seconds left; None where they cannot be estimated."""
        current = self._now
        if current is None:
            return sum(one.seconds for one in self.stages) or None
        here = self._left_here(current, now)
        if here is None:
            return None
        later = sum(one.seconds for one in self.stages[self._next :])
        return here + later * self._scale(current, now)

    def _begin(self, now: float, stage: str) -> None:
        if self._now is not None and self._now.estimate.seconds > 0:
            self._took += now - self._now.began
            self._estimated += self._now.estimate.seconds
        for number in range(self._next, len(self.stages)):
            if _is(self.stages[number], stage):
                self._next = number + 1
                self._now = _Stage(self.stages[number], now)
                return
        self._now = _Stage(StageEstimate(stage=stage), now)

    def _left_here(self, current: _Stage, now: float) -> float | None:
        pace = _pace(current)
        if pace is not None and current.last is not None:
            at, share = current.last
            return max(0.0, (1 - share) * pace - (now - at))
        estimate = current.estimate.seconds
        if estimate <= 0:
            return None
        return max(0.0, estimate * self._scale(None, now) - (now - current.began))

    def _scale(self, current: _Stage | None, now: float) -> float:
        """Return measured over estimated time, of the finished stages and the current one."""
        took, estimated = self._took, self._estimated
        if current is not None:
            expected = current.estimate.seconds
            so_far = _pace(current) or now - current.began
            if _pace(current) is not None or so_far > expected:
                took, estimated = took + so_far, estimated + expected
        if estimated < _LEAST_S:
            return 1.0
        return min(max(took / estimated, 1 / MOST_CORRECTION), MOST_CORRECTION)


def share_done(estimate: StageEstimate, done: float, total: float) -> float:
    """Return which share of a stage's work is done, by the cost of its units where that is known.

    A stage may go on after its last unit: there is one cost more than units then.
    """
    costs = estimate.units
    if len(costs) < total or sum(costs) <= 0:
        return min(1.0, done / total)
    whole = int(done)
    behind = sum(costs[:whole]) + (done - whole) * (costs[whole] if whole < len(costs) else 0.0)
    return min(1.0, behind / sum(costs))


def _pace(stage: _Stage) -> float | None:
    """Return the seconds of the whole stage at the pace of its finished units.

    With two units or more, the pace counts from the first: units of an earlier run are finished at
    once, and a stage's start-up is not a unit.
    """
    if stage.first is None or stage.last is None:
        return None
    (since, before), (at, share) = stage.first, stage.last
    if share > before:
        return (at - since) / (share - before)
    if share <= 0 or at <= stage.began:
        return None
    # A single unit may be cheap or cached: it does not predict the others.
    return (at - stage.began) / share if not stage.estimate.units else None


def _is(estimate: StageEstimate, stage: str) -> bool:
    """Whether a worker's message is of the stage: some add figures, `training, loss 1.2`."""
    return bool(estimate.stage) and stage.startswith(estimate.stage)

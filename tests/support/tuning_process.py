"""A tune in a process of its own, to be killed: `python -m tests.support.tuning_process JOURNAL N`.

It waits for its end at its N-th work, which has begun and is not written down; with N 0 it ends
by itself and prints what it found as JSON.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from packager.addons.bench.tune.candidates import TuneCandidate
from packager.addons.bench.tune.journal import Built, open_journal
from packager.addons.bench.tune.session import Race, Taken, tune
from tests.support.tuning import ASKED, STARTED, FakeWorkshop, a_field

WAITING = "waiting"


class Waiting(FakeWorkshop):
    """Waits in the middle of some work until it is killed."""

    last = 0

    def build(self, candidate: TuneCandidate) -> Built:
        found = super().build(candidate)
        self.wait()
        return found

    def measure(self, candidate: TuneCandidate, built: Built, number: int) -> Taken:
        found = super().measure(candidate, built, number)
        self.wait()
        return found

    def wait(self) -> None:
        if self.last and len(self.done) == self.last:
            print(WAITING, flush=True)  # noqa: T201
            sys.stdin.read()  # which has no end before this process


def main(path: Path, last: int) -> None:
    """Tune to the end, or until the N-th work."""
    workshop = Waiting()
    workshop.last = last
    with open_journal(path, ASKED, now=STARTED) as journal:
        done = tune(a_field(), Race(goal="throughput"), journal, workshop)
    print(json.dumps({"best": done.best, "work": workshop.done}))  # noqa: T201


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))

"""Cold starts of several images, in rounds, interleaved.

Each start begins with no container of the image, and ends with none.  An image that does not
start is a result, as is a benchmark that is interrupted: what was measured before is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from packager.addons.bench.sequence import balanced_orders
from packager.addons.bench.targets import BenchTarget
from packager.cli.serving.opening import MeasuredServer
from packager.core.errors import PackagerError
from packager.core.events import EventSink, StepEvent, ignore
from packager.core.startup import OneStart

STEP = "start"
ROUNDS = 3  # from there on there are intervals of confidence


@dataclass(slots=True, kw_only=True)
class StartResults:
    """Everything that was measured so far, by image."""

    rounds: int
    starts: dict[str, list[OneStart]] = field(default_factory=dict)
    failures: dict[str, PackagerError] = field(default_factory=dict)
    is_interrupted: bool = False


def measure_starts(
    targets: Sequence[BenchTarget],
    rounds: int,
    start: Callable[[MeasuredServer, int], OneStart],
    on_event: EventSink = ignore,
) -> StartResults:
    """Start every image the given number of times; raise only if no start was measured."""
    results = StartResults(rounds=rounds)
    orders = balanced_orders(len(targets))
    on_event(StepEvent(step=STEP, state="started"))
    done, whole = 0, rounds * len(targets)
    try:
        for number in range(rounds):
            for place in orders[number % len(orders)]:
                target = targets[place]
                words = f"{target.name}, round {number + 1} of {rounds}"
                share = done / whole
                on_event(
                    StepEvent(step=STEP, state="running", detail=words, units_done=share, units=1.0)
                )
                done += 1
                if target.name in results.failures:
                    continue
                try:
                    found = start(target.server, number)
                except PackagerError as error:
                    results.failures[target.name] = error
                    continue
                results.starts.setdefault(target.name, []).append(found)
    except KeyboardInterrupt:
        results.is_interrupted = True
    on_event(StepEvent(step=STEP, state="finished"))
    if not results.starts and results.is_interrupted:
        raise KeyboardInterrupt
    if not results.starts and results.failures:
        raise next(iter(results.failures.values()))
    return results

"""The run of a benchmark: every server under every load, in rounds, interleaved.

Figures are computed at the end, never while a server is under load.  A server that exits and an
interrupted benchmark are results: earlier measurements are kept.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from packager.addons.bench.load.values import Level, LoadRun
from packager.addons.bench.metrics import load_figures
from packager.addons.bench.options import TOO_MANY_ERRORS, TOO_SLOW, BenchOptions
from packager.addons.bench.pool import ServerPool
from packager.addons.bench.search import SearchResult, find_knee, find_max_concurrency, point_of
from packager.addons.bench.sequence import Turn, order_turns
from packager.addons.bench.targets import BenchTarget
from packager.addons.bench.usage import UseMeter
from packager.cli.serving.opening import OpenServer
from packager.core.bench import BenchLoad, ContainerUse, Limits
from packager.core.errors import PackagerError
from packager.core.events import EventSink, StepEvent, ignore

STEP = "measure"
TTFT, LATENCY = "time_to_first_token", "request_latency"

Send = Callable[[OpenServer, Level, int, Callable[[], None]], LoadRun]
"""Puts a server under a load of a round, and calls back for every answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OneLoad:
    """One round of one load of one server."""

    target: str
    level: Level
    round: int  # from 0
    run: LoadRun
    use: ContainerUse | None = None


@dataclass(slots=True, kw_only=True)
class Results:
    """Everything that was measured so far."""

    loads: list[OneLoad] = field(default_factory=list)
    searches: dict[str, SearchResult] = field(default_factory=dict)  # by server
    failures: dict[str, PackagerError] = field(default_factory=dict)  # the same
    start_s: Mapping[str, float] = field(default_factory=dict)
    models: Mapping[str, str] = field(default_factory=dict)  # as servers name them
    rounds: int = 1
    is_interrupted: bool = False

    def of(self, target: str) -> list[OneLoad]:
        """Return the loads of one server, by load and then by round."""
        mine = [one for one in self.loads if one.target == target]
        return sorted(mine, key=lambda one: (*_order(one.level), one.round))

    def by_level(self, target: str) -> Iterator[tuple[Level, list[OneLoad]]]:
        """Yield the rounds of each load of one server."""
        for level, found in itertools.groupby(self.of(target), key=lambda one: one.level):
            yield level, list(found)


@dataclass(slots=True, kw_only=True)
class Session:
    """What measures: the servers, what is sent, and where results go."""

    targets: Sequence[BenchTarget]
    asked: BenchOptions
    pool: ServerPool
    send: Send
    on_event: EventSink = ignore
    on_load: Callable[[OneLoad], None] = ignore
    meter: Callable[[OpenServer], UseMeter] = lambda server: UseMeter(server.container)
    results: Results = field(default_factory=Results)

    def measure(self) -> Results:
        """Run every requested measurement; raise only if none succeeded."""
        results = self.results
        if not self.asked.find:
            results.rounds = self.asked.rounds_of(len(self.targets))
        results.failures = self.pool.failures
        results.start_s = self.pool.start_s
        results.models = self.pool.models
        self.on_event(StepEvent(step=STEP, state="started"))
        try:
            if self.asked.find:
                for target in self.targets:
                    self._search(target)
            else:
                self._take_turns(results.rounds)
        except KeyboardInterrupt:
            results.is_interrupted = True
        self.on_event(StepEvent(step=STEP, state="finished"))
        if not results.loads and results.is_interrupted:
            raise KeyboardInterrupt
        if not results.loads and results.failures:
            raise next(iter(results.failures.values()))
        return results

    def _take_turns(self, rounds: int) -> None:
        levels = self.asked.levels
        together = self.pool.can_be_together(self.targets)
        turns = order_turns(len(self.targets), len(levels), rounds, one_at_a_time=not together)
        last = dict.fromkeys(range(len(self.targets)), len(levels) - 1)
        numbers = itertools.count()
        for _, group in itertools.groupby(turns, key=_each if together else _server_of):
            for turn in self._open_turns(list(group), alone=not together):
                target, share = self.targets[turn.variant], next(numbers) / len(turns)
                if turn.level > last[turn.variant] or target.name in self.pool.failures:
                    continue
                done = self._load(target, levels[turn.level], turn.round, share)
                if done is not None and turn.round == 0 and self._has_enough(target.name, done):
                    last[turn.variant] = turn.level

    def _open_turns(self, group: Sequence[Turn], *, alone: bool) -> Iterator[Turn]:
        """Yield turns of one server while it is up and no other server of ours computes."""
        target = self.targets[group[0].variant]
        if target.name in self.pool.failures:
            return
        try:
            with self.pool.use(target, alone=alone):
                yield from group
        except PackagerError:
            if target.name not in self.pool.failures:
                raise

    def _load(self, target: BenchTarget, level: Level, number: int, share: float) -> OneLoad | None:
        """Measure an open server under one load; return None where it failed."""
        server = self.pool.opened(target)
        words = f"{target.name}, {level.words}"
        if self.results.rounds > 1 and not self.asked.find:
            words += f", round {number + 1} of {self.results.rounds}"
        on_answer = counting(words, lambda detail: self._tell(detail, share))
        try:
            with self.meter(server) as meter:
                run = self.send(server, level, number, on_answer)
            if run.cancelled:
                self.results.is_interrupted = True
            else:
                server.check(run.lost)
        except PackagerError as error:
            self.pool.fail(target, error)
            return None
        done = OneLoad(
            target=target.name, level=level, round=number, run=without_texts(run), use=meter.use
        )
        if run.results:
            self.results.loads.append(done)
            self.on_load(done)
        if run.cancelled:
            raise KeyboardInterrupt
        return done

    def _has_enough(self, name: str, done: OneLoad) -> bool:
        """Return whether heavier loads of a ramp are not worth measuring."""
        if not self.asked.is_ramp:
            return False
        now = load_figures([done.run], Limits())
        if now.requests and (now.requests - now.answered) / now.requests > TOO_MANY_ERRORS:
            return True
        first = load_figures([self.results.of(name)[0].run], Limits())
        tag = TTFT if TTFT in first.metrics else LATENCY
        before, after = first.metrics.get(tag), now.metrics.get(tag)
        if before is None or after is None or before.p50 is None or after.p50 is None:
            return False
        return after.p50 > TOO_SLOW * before.p50

    def _search(self, target: BenchTarget) -> None:
        """Search one server's boundary; every load that it took is a result, too."""
        tried: dict[int, int] = {}

        def take(concurrency: int) -> BenchLoad:
            number = tried.get(concurrency, 0)
            tried[concurrency] = number + 1
            done = self._load(target, Level(concurrency=concurrency), number, 0.0)
            if done is None:
                raise self.pool.failures[target.name]
            return load_figures([done.run], self.asked.limits)

        try:
            with self.pool.use(target, alone=True):
                if self.asked.find == "knee":
                    found = find_knee(lambda n: point_of(take(n)), most=self.asked.most)
                else:
                    found = find_max_concurrency(
                        lambda n: point_of(take(n)), self.asked.limits, most=self.asked.most
                    )
        except PackagerError:
            if target.name not in self.pool.failures:
                raise
            return
        self.results.searches[target.name] = found

    def _tell(self, detail: str, share: float) -> None:
        self.on_event(
            StepEvent(
                step=STEP, state="running", detail=detail, stage="", units_done=share, units=1.0
            )
        )


def counting(words: str, tell: Callable[[str], None]) -> Callable[[], None]:
    """Report what is measured now, and return what reports the count after every answer."""
    answers = itertools.count(1)
    tell(words)
    return lambda: tell(f"{words}: {next(answers)} answers")


def without_texts(run: LoadRun) -> LoadRun:
    """Drop what figures are not made of: a thousand answers are kept until the end."""
    results = tuple(
        replace(one, text=one.text[:1], token_ids=(), prompt_token_ids=()) for one in run.results
    )
    return replace(run, results=results)


def _server_of(turn: Turn) -> tuple[int, int]:
    return turn.round, turn.variant


def _each(turn: Turn) -> Turn:
    return turn


def _order(level: Level) -> tuple[float, int]:
    return level.rate or 0.0, level.concurrency or 0

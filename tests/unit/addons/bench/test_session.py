"""The run of a benchmark: in which order, when it ends, and what is kept of what failed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from packager.addons.bench.load.values import Level, LoadResult, LoadRun
from packager.addons.bench.options import BenchOptions
from packager.addons.bench.pool import ServerPool
from packager.addons.bench.session import Results, Session
from packager.addons.bench.targets import BenchTarget
from packager.cli.serving.opening import MeasuredServer, OpenServer
from packager.core.errors import PackagerError, SmokeFailed
from tests.unit.addons.bench.loads import answer as timed
from tests.unit.addons.bench.loads import failure, load

TTFT_S, TPOT_S, TOKENS = 0.1, 0.01, 11


def answer(number: int, ttft_s: float = TTFT_S, *, failed: bool = False) -> LoadResult:
    if failed:
        return failure(number, "status", reason="no")
    at = [ttft_s + place * TPOT_S for place in range(TOKENS)]
    counts = {"input_tokens": 5, "output_tokens": TOKENS, "token_ids": (1, 2)}
    return timed(number, at=at, text="a long answer", **counts)


def run_of(level: Level, *results: LoadResult, **changes: Any) -> LoadRun:
    return load(*results, level=level, **{"seconds": 1.0, **changes})


@dataclass
class FakeContainer:
    status: str = "running"
    attrs: dict[str, Any] = field(default_factory=lambda: {"State": {"ExitCode": 137}})

    def reload(self) -> None:
        """Stay as it is."""

    def logs(self, **_: object) -> bytes:
        return b"out of memory\n"


@dataclass
class FakePool:
    """Opens every server at once."""

    together: bool = True
    said: list[str] = field(default_factory=list)
    containers: dict[str, FakeContainer] = field(default_factory=dict)
    failures: dict[str, PackagerError] = field(default_factory=dict)
    start_s: dict[str, float] = field(default_factory=dict)
    models: dict[str, str] = field(default_factory=dict)

    def can_be_together(self, targets: Sequence[BenchTarget]) -> bool:
        return self.together

    @contextmanager
    def use(self, target: BenchTarget, *, alone: bool = False) -> Iterator[OpenServer]:
        if target.name in self.failures:
            raise self.failures[target.name]
        self.said.append(f"open {target.name}")
        yield self.opened(target)

    def opened(self, target: BenchTarget) -> OpenServer:
        return OpenServer(
            server=cast("Any", None),
            model="m",
            shown=target.name,
            url=target.name,
            container=self.containers.get(target.name),
        )

    def fail(self, target: BenchTarget, error: PackagerError) -> None:
        self.failures[target.name] = error


Send = Callable[[OpenServer, Level, int, Callable[[], None]], LoadRun]


def target(name: str) -> BenchTarget:
    return BenchTarget(name=name, server=MeasuredServer(name=f"http://{name}", env={}))


def session(send: Send, *names: str, pool: FakePool | None = None, **asked: Any) -> Session:
    return Session(
        targets=[target(name) for name in names],
        asked=BenchOptions(**asked),
        pool=cast("ServerPool", pool or FakePool()),
        send=send,
    )


def good(server: OpenServer, level: Level, number: int, on_answer: Callable[[], None]) -> LoadRun:
    on_answer()
    return run_of(level, answer(0), answer(1))


def order_of(results: Results) -> list[tuple[str, int | None, int]]:
    return [(one.target, one.level.concurrency, one.round) for one in results.loads]


def test_servers_take_turns_at_every_load_and_change_places() -> None:
    results = session(good, "a", "b", concurrency=(1, 4), rounds=2).measure()

    assert order_of(results) == [
        *(("a", 1, 0), ("b", 1, 0), ("b", 4, 0), ("a", 4, 0)),
        *(("b", 1, 1), ("a", 1, 1), ("a", 4, 1), ("b", 4, 1)),
    ]


def test_servers_that_cannot_run_side_by_side_take_all_their_loads_once_started() -> None:
    pool = FakePool(together=False)

    results = session(good, "a", "b", pool=pool, concurrency=(1, 4), rounds=2).measure()

    assert order_of(results) == [
        *(("a", 1, 0), ("a", 4, 0), ("b", 1, 0), ("b", 4, 0)),
        *(("b", 1, 1), ("b", 4, 1), ("a", 1, 1), ("a", 4, 1)),
    ]
    assert pool.said == ["open a", "open b", "open b", "open a"]


def test_a_ramp_ends_when_first_tokens_take_over_five_times_as_long() -> None:
    def slower(server: OpenServer, level: Level, *_: Any) -> LoadRun:
        ttft_s = {1: 0.1, 2: 0.2, 4: 0.5}.get(level.concurrency or 0, 0.51)
        return run_of(level, answer(0, ttft_s))

    results = session(slower, "a").measure()

    assert [level for _, level, _ in order_of(results)] == [1, 2, 4, 8]


def test_a_ramp_ends_when_more_than_one_in_a_hundred_requests_fails() -> None:
    def failing(server: OpenServer, level: Level, *_: Any) -> LoadRun:
        lost = 2 if level.concurrency == 4 else 1
        return run_of(level, *(answer(n, failed=n < lost) for n in range(100)))

    results = session(failing, "a").measure()

    assert [level for _, level, _ in order_of(results)] == [1, 2, 4]


def test_a_server_that_has_enough_does_not_end_the_ramp_of_another() -> None:
    def send(server: OpenServer, level: Level, *_: Any) -> LoadRun:
        slow = server.shown == "a" and level.concurrency != 1
        return run_of(level, answer(0, 9.0 if slow else 0.1))

    found = order_of(session(send, "a", "b", rounds=2).measure())
    assert sorted(level or 0 for name, level, _ in found if name == "a") == [1, 1, 2, 2]
    assert sum(name == "b" for name, _, _ in found) == 14


def test_loads_that_were_named_are_all_measured() -> None:
    def failing(server: OpenServer, level: Level, *_: Any) -> LoadRun:
        return run_of(level, answer(0, failed=True))

    results = session(failing, "a", concurrency=(1, 2, 4)).measure()

    assert [level for _, level, _ in order_of(results)] == [1, 2, 4]


def test_a_server_that_ends_under_load_is_a_result_and_the_others_go_on() -> None:
    pool = FakePool(containers={"a": FakeContainer(status="exited")})

    results = session(good, "a", "b", pool=pool, concurrency=(1,), rounds=1).measure()

    assert order_of(results) == [("b", 1, 0)]
    failure = results.failures["a"]
    assert failure.message == "the container ended with status 137 while it was measured"


def test_a_server_that_stops_answering_is_not_asked_again() -> None:
    asked: list[int | None] = []

    def lost(server: OpenServer, level: Level, *_: Any) -> LoadRun:
        asked.append(level.concurrency)
        return run_of(level, answer(0, failed=True), lost="the connection failed")

    with pytest.raises(SmokeFailed) as failed:
        session(lost, "a", concurrency=(1, 2, 4), rounds=3).measure()

    assert asked == [1]
    assert failed.value.message == "'a' stopped answering: the connection failed"


def test_a_server_that_fails_on_its_own_leaves_out_the_rest_of_its_loads() -> None:
    asked: list[tuple[str, int | None]] = []

    def lost(server: OpenServer, level: Level, *_: Any) -> LoadRun:
        asked.append((server.shown, level.concurrency))
        return run_of(level, answer(0, failed=True), lost="the connection failed")

    pool = FakePool(together=False)
    with pytest.raises(SmokeFailed):
        session(lost, "a", "b", pool=pool, concurrency=(1, 2), rounds=2).measure()

    assert asked == [("a", 1), ("b", 1)]


def test_an_interrupted_load_is_kept_and_the_last() -> None:
    def send(server: OpenServer, level: Level, *_: Any) -> LoadRun:
        return run_of(level, answer(0), cancelled=level.concurrency == 2)

    results = session(send, "a", concurrency=(1, 2, 4)).measure()

    assert [level for _, level, _ in order_of(results)] == [1, 2]
    assert results.is_interrupted


def test_an_interrupt_before_anything_was_measured_is_one() -> None:
    def send(server: OpenServer, level: Level, *_: Any) -> LoadRun:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        session(send, "a", concurrency=(1,)).measure()


def test_a_search_finds_the_boundary_of_each_server_and_keeps_its_loads() -> None:
    def send(server: OpenServer, level: Level, *_: Any) -> LoadRun:
        most = {"a": 5, "b": 2}[server.shown]
        late = (level.concurrency or 0) > most
        return run_of(level, *(answer(n, 0.9 if late else 0.1) for n in range(10)))

    results = session(send, "a", "b", find="max-concurrency", ttft_ms=500.0).measure()

    assert results.searches["a"].boundary.feasible == 5
    assert results.searches["a"].boundary.infeasible == 6
    assert results.searches["b"].boundary.feasible == 2
    assert [level.concurrency for level, _ in results.by_level("a")] == [1, 2, 4, 5, 6, 8]
    assert results.rounds == 1  # points are measured again, but not by turns


def test_of_answers_only_what_figures_are_made_of_is_kept() -> None:
    (kept, _) = session(good, "a", concurrency=(1,)).measure().loads[0].run.results
    assert (kept.text, kept.token_ids, kept.output_tokens) == ("a", (), TOKENS)


def test_every_load_is_told_and_the_answers_that_came() -> None:
    told: list[str] = []
    work = session(good, "a", concurrency=(1,), rounds=2)
    work.on_event = lambda event: told.append(getattr(event, "detail", ""))

    work.measure()

    assert "a, concurrency 1, round 2 of 2: 1 answers" in told

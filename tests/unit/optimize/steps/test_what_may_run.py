"""A step that may not run takes its result from the cache or ends, whatever the cache does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from artifact_cache import ArtifactCache
from artifact_cache.errors import NotTaken, StoreUnavailable
from artifact_cache.store import Address, Capability, StoredEntry
from packager.cli.wiring import steps
from packager.cli.wiring.settings import Settings
from packager.core.errors import CachedFileChanged, LostFromCache, NotCached
from packager.core.recipe import Step, StepOutcome, StepResult
from packager.optimize.steps.dry_run import DryRunExecutor
from packager.optimize.steps.running import with_cache_healed
from packager.optimize.steps.services import OnMiss
from tests.support.cache_entries import NEURON, Build, files_of
from tests.support.cache_opening import LocalStore, open_local
from tests.support.cases import cases_of
from tests.support.places import files_below
from tests.support.tool_steps import run_step
from tests.unit.optimize.steps.test_larger_artifacts import step_of, tool

cases = cases_of(__file__)


class Compiler(DryRunExecutor):
    """Counts what it is asked to run."""

    runs = 0

    def run(self, step: Step, into: Path) -> StepResult:
        self.runs += 1
        Build(b"anew")(into)
        return StepResult()


class FailingStore(LocalStore):
    """Finds entries; what happens when files are taken is for the test to say."""

    def __init__(self, root: Path, fail: Callable[[Path], None]) -> None:
        super().__init__(root)
        self._fail = fail

    def get(self, address: Address) -> StoredEntry | None:
        found = super().get(address)
        return replace(found, extract=self._fail) if found else None


class Off(LocalStore):
    """A store that nobody can use."""

    def capability(self) -> Capability:
        return Capability("off", "the disk is gone")


def unavailable(into: Path) -> None:
    raise StoreUnavailable("cache", "input/output error")


def io_error(into: Path) -> None:
    raise OSError(5, "Input/output error")


def half(into: Path) -> None:
    (into / "config.json").write_bytes(b"{}")
    raise StoreUnavailable("cache", "the entry was removed meanwhile")


@pytest.fixture
def filled(tmp_path: Path) -> Path:
    root = tmp_path / "cache/artifacts"
    open_local(root).get_or_build(NEURON, Build(b"kept"), tmp_path / "built")
    return root


def run(
    tmp_path: Path, cache: ArtifactCache | None, *, may_run: bool, step: Step | None = None
) -> tuple[StepOutcome | None, Compiler, NotCached | None]:
    executor, asked = Compiler(tool), step or step_of(NEURON)
    try:
        outcome = run_step(executor, cache, tmp_path, asked, may_run=lambda _: may_run)
    except NotCached as error:
        return None, executor, error
    return outcome, executor, None


@pytest.mark.parametrize("fail", [unavailable, io_error, half], ids=lambda one: one.__name__)
def test_a_result_lost_after_it_was_found_is_not_made_anew(
    tmp_path: Path, filled: Path, fail: Callable[[Path], None]
) -> None:
    cache = open_local(filled, store=FailingStore(filled, fail))
    assert cache.find(NEURON) is not None

    outcome, executor, error = run(tmp_path, cache, may_run=False)

    assert (outcome, executor.runs) == (None, 0)
    assert isinstance(error, LostFromCache)
    assert error.exit_code == 8
    assert "step 'compile' cannot be taken from the cache" in error.message
    assert cache.failure(NEURON) is None


def test_a_cache_that_is_off_gives_nothing_and_nothing_runs(tmp_path: Path, filled: Path) -> None:
    _, executor, error = run(tmp_path, open_local(filled, store=Off(filled)), may_run=False)

    assert executor.runs == 0
    assert error is not None
    assert "the cache is off: the disk is gone" in error.message


@pytest.mark.parametrize("missing", ["cache", "key"])
def test_without_a_cache_or_key_nothing_runs(tmp_path: Path, filled: Path, missing: str) -> None:
    cache = None if missing == "cache" else open_local(filled)
    step = step_of(NEURON) if missing == "cache" else replace(step_of(NEURON), key=None)

    _, executor, error = run(tmp_path, cache, may_run=False, step=step)

    assert (executor.runs, isinstance(error, LostFromCache)) == (0, True)


@pytest.mark.parametrize("may_run", [True, False])
def test_what_is_there_is_taken_either_way(tmp_path: Path, filled: Path, may_run: bool) -> None:
    outcome, executor, _ = run(tmp_path, open_local(filled), may_run=may_run)

    assert outcome is not None
    assert (outcome.reused, executor.runs) == (True, 0)


def test_what_may_run_is_made_anew(tmp_path: Path, filled: Path) -> None:
    cache = open_local(filled, store=FailingStore(filled, unavailable))

    outcome, executor, _ = run(tmp_path, cache, may_run=True)

    assert outcome is not None
    assert (outcome.reused, executor.runs) == (False, 1)


@cases("promised")
def test_the_runner_keeps_what_the_user_was_promised(
    on_miss: OnMiss, gives: str, may_run: bool
) -> None:
    step = replace(step_of(NEURON), gives=gives)  # type: ignore[arg-type]

    assert steps._may_run(step, Settings(on_miss=on_miss)) is may_run


def test_taking_builds_nothing_and_leaves_nothing(tmp_path: Path, filled: Path) -> None:
    cache = open_local(filled)
    other = NEURON.model_copy(update={"layout": "other"})

    with pytest.raises(NotTaken, match="it is not there"):
        cache.take(other, tmp_path / "none")
    taken = cache.take(NEURON, tmp_path / "out")

    assert list((tmp_path / "none").iterdir()) == []
    assert cache.stats is not None
    counted = {total.event: total.count for total in cache.stats.totals()}
    assert (counted["miss"], counted["hit"]) == (2, 1)  # one of them filled it
    assert (taken.hit, files_below(taken.path)) == (True, files_of(b"kept"))


class Healing:
    """BuildServices that count how often the cache was distrusted."""

    def __init__(self) -> None:
        self.distrusted: list[CachedFileChanged] = []
        self.distrust_cache = self.distrusted.append


@pytest.mark.parametrize(
    ("ends", "times", "distrusted"),
    [
        ([], 1, 0),
        ([CachedFileChanged("a")], 2, 1),
        ([LostFromCache("quantize", "it is not there")], 2, 0),
    ],
    ids=["sound", "damaged", "lost"],
)
def test_work_is_done_once_more_upon_a_healed_cache(
    ends: list[Exception], times: int, distrusted: int
) -> None:
    tools, done = Healing(), []

    def work() -> str:
        done.append(1)
        if ends:
            raise ends.pop()
        return "image"

    assert with_cache_healed(tools, work) == "image"  # type: ignore[arg-type]
    assert (len(done), len(tools.distrusted)) == (times, distrusted)


def test_a_cache_that_is_damaged_again_ends_the_work() -> None:
    tools, done = Healing(), []

    def work() -> str:
        done.append(1)
        raise CachedFileChanged("a")

    with pytest.raises(CachedFileChanged) as failed:
        with_cache_healed(tools, work)  # type: ignore[arg-type]

    assert (len(done), failed.value.exit_code) == (2, 65)

"""Running a plan: retries, infeasible jobs, what is there, what needs what."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from packager.addons.fleet.run import run_plan
from packager.core.warmup import Ended, Job, Node, Outcome, WarmPlan
from tests.support.cases import cases
from tests.support.refusals import raises_code
from tests.support.warmup_plans import job, plan

NODE = Node(name="one", cpus=4, memory_bytes=2**34)
GPU = Node(name="two", cpus=4, memory_bytes=2**34, accelerator="nvidia", device="A10G", devices=1)


class Store:
    """What is in the shared cache."""

    def __init__(self, *keys: str, is_shared: bool = True) -> None:
        self.keys = set(keys)
        self.is_shared = is_shared

    def has(self, artifact: str, key: str) -> bool:
        return key in self.keys


class Script:
    """A fleet whose jobs end as told: a list of ends for each index, the last one repeated."""

    is_shared = False

    def __init__(self, store: Store, *nodes: Node, **ends: list[Ended]) -> None:
        self.store = store
        self.ends = ends
        self.given = nodes or (NODE,)
        self.submitted: list[int] = []
        self.due: list[Ended] = []

    def nodes(self) -> tuple[Node, ...]:
        return self.given

    def submit(self, one: Job) -> None:
        self.submitted.append(one.index)
        left = self.ends.get(f"job{one.index}", [])
        ended = (left.pop(0) if len(left) > 1 else left[0]) if left else well(one)
        if not ended.code and not ended.lost:
            self.store.keys.add(one.key)
        self.due.append(ended)

    def poll(self, timeout_s: float) -> Sequence[Ended]:
        due, self.due = self.due, []
        return due

    def close(self) -> None:
        self.due = []


def well(one: Job) -> Ended:
    said = {"artifact": one.artifact or "x", "key": one.key}
    return Ended(index=one.index, said=json.dumps(said))


def clock() -> Callable[[], float]:
    """A clock that leaps, so that no test waits for a pause."""
    now = [0.0]

    def tell() -> float:
        now[0] += 10.0
        return now[0]

    return tell


def run(given: WarmPlan, fleet: Script, **changes: Any) -> tuple[Outcome, ...]:
    return run_plan(given, fleet, fleet.store, clock=clock(), **changes)  # type: ignore[arg-type]


def states(outcomes: Sequence[Outcome]) -> list[str]:
    return [one.state for one in outcomes]


def test_what_is_there_is_not_submitted() -> None:
    jobs = [job(0), job(1)]
    fleet = Script(Store(jobs[0].key))

    assert states(run(plan(*jobs), fleet)) == ["there", "built"]
    assert fleet.submitted == [1]


def test_a_fetch_whose_jobs_are_done_is_not_needed_any_more() -> None:
    later = job(1, needs=(0,))
    fleet = Script(Store(later.key))

    fetch = job(0, step="fetch", artifact="", key="")

    assert states(run(plan(fetch, later), fleet)) == ["there", "there"]
    assert fleet.submitted == []


def test_the_longest_job_goes_first_and_what_needs_it_after_it() -> None:
    fleet = Script(Store())

    run(plan(job(0, seconds=5), job(1, seconds=60), job(2, needs=(1,), seconds=99)), fleet)

    assert fleet.submitted == [1, 0, 2]


def test_a_failure_that_may_pass_is_tried_again_and_a_lost_node_too() -> None:
    busy, lost = Ended(index=0, code=75, log="error: busy"), Ended(index=0, lost="node died")
    fleet = Script(Store(), job0=[busy, lost, well(job(0))])

    [done] = run(plan(job(0)), fleet)

    assert (done.state, done.tries, done.lost) == ("built", 3, 1)


@pytest.mark.parametrize("code", [64, 65, 66, 70, 76, 77, 78])
def test_a_permanent_failure_is_not_repeated(code: int) -> None:
    fleet = Script(Store(), job0=[Ended(index=0, code=code, log="note\nerror: no such model")])

    [done] = run(plan(job(0)), fleet)

    assert (done.state, done.tries, done.code) == ("failed", 1, code)
    assert done.reason == "no such model"


def test_retries_end() -> None:
    fleet = Script(Store(), job0=[Ended(index=0, code=75)])

    [done] = run(plan(job(0)), fleet, retries=2)

    assert (done.state, done.tries) == ("failed", 3)


def test_what_needs_a_failed_job_is_skipped_and_the_rest_is_done() -> None:
    fleet = Script(Store(), job0=[Ended(index=0, code=65)])

    found = run(plan(job(0), job(1, needs=(0,)), job(2, needs=(1,)), job(3)), fleet)

    assert states(found) == ["failed", "skipped", "skipped", "built"]
    assert fleet.submitted == [0, 3]


@cases("infeasible")
def test_what_no_node_has_is_said_and_never_submitted(resources: dict[str, Any]) -> None:
    fleet = Script(Store(), NODE, GPU)

    [done] = run(plan(job(0, resources=resources)), fleet)

    assert done.state == "infeasible"
    assert done.reason.startswith("none of 2 machines has ")
    assert fleet.submitted == []


def test_a_device_that_a_node_has_is_used() -> None:
    needs = {"accelerator": "nvidia", "device": "A10G", "devices": 1}

    assert states(run(plan(job(0, resources=needs)), Script(Store(), NODE, GPU))) == ["built"]


def test_several_machines_need_a_shared_store() -> None:
    with raises_code("WarmupNeedsSharedCache", match="2 machines would build"):
        run(plan(job(0)), Script(Store(is_shared=False), NODE, GPU))

    assert states(run(plan(job(0)), Script(Store(is_shared=False), NODE))) == ["built"]


@cases("not_believed")
def test_a_job_is_not_believed_to_be_done_without_its_artifact(said: str, reason: str) -> None:
    fleet = Script(Store(), job0=[Ended(index=0, said=said)])

    [done] = run(plan(job(0)), fleet, retries=0)

    assert (done.state, done.reason) == ("failed", reason)


def test_a_result_that_is_nowhere_is_built_again() -> None:
    class Forgetful(Store):
        asked = 0

        def has(self, artifact: str, key: str) -> bool:
            self.asked += 1
            return self.asked > 2 and super().has(artifact, key)

    [done] = run(plan(job(0)), Script(Forgetful()))

    assert (done.state, done.tries) == ("built", 2)

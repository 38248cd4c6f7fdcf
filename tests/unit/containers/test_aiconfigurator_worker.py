"""The worker that asks aiconfigurator, with a stand-in for its function.

The stand-in has the signature and the results of `cli_estimate` 0.12.0; `tests/live` has the real
one.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.support.cases import cases, read_tables
from tests.support.workers import TOOLS, load

TABLES = read_tables(__file__)
ASKED, CALL, POINT = TABLES["asked"], TABLES["call"], TABLES["point"]
ERRORS = {error.__name__: error for error in (ValueError, LookupError, KeyError)}


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(TOOLS / "common"))
    module = load(TOOLS / "aiconfigurator" / "worker.py")
    yield module
    sys.modules.pop("packager_worker", None)


class Report:
    def __init__(self) -> None:
        self.said: list[tuple[str, float, float]] = []

    def progress(self, message: str, done: float = 0, total: float = 0) -> None:
        self.said.append((message, done, total))


@dataclass
class Estimate:
    tpot: float
    ttft: float
    raw: dict[str, Any]
    backend_version: str = "0.24.0"


class Estimating:
    """Answers every call, or raises what it was given for the batch."""

    def __init__(self, failing: dict[int, Exception] | None = None) -> None:
        self.failing = failing or {}
        self.calls: list[dict[str, Any]] = []

    def __call__(self, model: str, system: str, **asked: Any) -> Estimate:
        self.calls.append({"model": model, "system": system, **asked})
        if error := self.failing.get(asked["batch_size"]):
            raise error
        raw = {"tokens/s": 100.0, "gemm": "fp8", "moe": "fp8", "kvcache": "bfloat16"}
        return Estimate(tpot=8.0, ttft=50.0, raw=raw)


def test_every_point_is_asked_for_as_it_was_planned(worker: ModuleType) -> None:
    estimating, report = Estimating(), Report()

    found = worker.estimate_all(estimating, "/model", ASKED, report)

    assert estimating.calls[1] == CALL
    assert found["points"][1] == {
        **POINT,
        "output_tokens_s": pytest.approx(POINT["output_tokens_s"]),
    }
    assert found["engine_version"] == "0.24.0"
    assert found["modes"] == {"gemm": "fp8", "moe": "fp8", "kvcache": "bfloat16"}
    assert report.said == [("estimating", 0, 3), ("estimating", 1, 3), ("estimating", 2, 3)]
    json.dumps(found)


def test_requests_that_do_not_fit_leave_the_others_their_figures(worker: ModuleType) -> None:
    error = RuntimeError("OOM: the model '/tmp/run/inputs/model' does not fit in GPU memory")

    found = worker.estimate_all(Estimating({8: error}), "/model", ASKED, Report())

    assert [point.get("kind") for point in found["points"]] == [None, "memory", None]
    assert "/tmp" not in found["points"][1]["reason"]


@cases("unknown")
def test_what_it_does_not_know_is_asked_once_and_answered_for_all(
    worker: ModuleType, error: str, message: str, kind: str
) -> None:
    estimating = Estimating({1: ERRORS[error](message)})

    found = worker.estimate_all(estimating, "/model", ASKED, Report())

    assert len(estimating.calls) == 1
    assert [point["concurrency"] for point in found["points"]] == [2, 16, 64]
    assert {point["kind"] for point in found["points"]} == {kind}
    assert all(point["reason"] and "/x/y" not in point["reason"] for point in found["points"])


def test_a_long_reason_is_cut(worker: ModuleType) -> None:
    _, reason = worker.explain(ValueError("word " * 1000))

    assert len(reason) == worker.LONGEST + 1


def test_a_model_without_a_config_is_a_bad_input(worker: ModuleType, tmp_path: Path) -> None:
    spec = type("Spec", (), {"inputs": {"model": tmp_path}})()

    with pytest.raises(worker.BadInput, match=r"config\.json"):
        worker.work(spec, Report())

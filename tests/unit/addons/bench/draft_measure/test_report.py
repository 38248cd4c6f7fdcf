"""What people read of a measured draft."""

from __future__ import annotations

from typing import Any

from packager.addons.bench.draft_measure.report import draft_report
from packager.core.reports.text import report_lines
from packager.core.speculation import Acceptance, Speed
from tests.support.cases import cases_of, read_tables
from tests.support.report_values import load_figures, speculation_report

cases = cases_of(__file__)


def test_everything_that_was_measured_is_shown() -> None:
    assert report_lines(draft_report(speculation_report())) == read_tables(__file__)["printed"]


def test_one_server_alone_has_no_columns_of_another() -> None:
    speeds = (Speed(concurrency=2, speculative=load_figures(), plain=None, speedup=None),)

    lines = list(
        report_lines(draft_report(speculation_report(plain="", speeds=speeds, sameness=None)))
    )

    assert lines[0] == "shop:eagle"
    assert lines[7:9] == [
        "  concurrency  tok/s  TTFT p50  TPOT p50  TPOT p95",
        "            2  100.0   50.0 ms   10.0 ms   20.4 ms",
    ]
    assert lines[-1] == "answers     not compared: there is no plain server"


@cases("who_told_of_acceptance_is_said")
def test_who_told_of_acceptance_is_said(counted: dict[str, Any] | None, said: str) -> None:
    found = Acceptance(**{"length": None, "rate": None} | counted) if counted else None

    assert list(report_lines(draft_report(speculation_report(acceptance=found))))[3] == said


@cases("why_answers_part_is_said")
def test_why_answers_part_is_said(verdict: Any, gap: float | None, said: str) -> None:
    same = speculation_report().sameness
    assert same is not None
    found = same.differences[0].model_copy(update={"verdict": verdict, "gap": gap})
    ties = {"ties": 1, "noise": 0.25} if verdict == "tie" else {}
    report = speculation_report(sameness=same.model_copy(update={"differences": (found,), **ties}))

    lines = list(report_lines(draft_report(report)))

    assert f"              parts at character 12, token 4, {said}:" in lines
    told = (
        "            1 part at a tie: both tokens are within 0.25 nats of the plain server's best"
    )
    assert (told in lines) == (verdict == "tie")

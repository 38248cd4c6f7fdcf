"""Jobs as pages show them."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from packager.addons.server.pages.job_views import duration, facts_of, job_path, stages_of, state_of
from tests.support.cases import cases_of
from tests.support.made_up_jobs import BEGAN, PROGRESS, MadeUpJobs, new_job

cases = cases_of(__file__)


@cases("times")
def test_times_are_for_people(seconds: float, words: str) -> None:
    assert duration(seconds) == words


def test_a_running_job_tells_its_step_and_the_time_left(tmp_path: Path) -> None:
    jobs = MadeUpJobs(tmp_path)
    job = jobs.change(jobs.create(new_job("a")), status="running", started=BEGAN)
    (job.folder / "progress.json").write_text(PROGRESS)

    state = state_of(job)

    assert state.words == "train (1 of 2) · train · speculators"
    assert state.left == "50 s left"
    assert state.share == 0.53


def test_a_job_whose_progress_is_damaged_is_shown_without(tmp_path: Path) -> None:
    jobs = MadeUpJobs(tmp_path)
    job = jobs.change(jobs.create(new_job("a")), status="running", started=BEGAN)
    (job.folder / "progress.json").write_text("{")

    assert (state_of(job).share, state_of(job).left) == (None, "")


def test_stages_are_commands_that_can_be_copied(tmp_path: Path) -> None:
    jobs = MadeUpJobs(tmp_path / "some jobs")
    job = jobs.change(jobs.create(new_job("a")), status="running", stage=1)

    train, build = stages_of(job)

    assert (train.state, build.state) == ("complete", "running")
    assert train.command == "packager draft train --model s3://models/llama/"
    assert build.command == f"packager build --request '{job.folder}/request.json'"


def test_a_job_that_was_ended_says_that_later_stages_were_not_begun(tmp_path: Path) -> None:
    jobs = MadeUpJobs(tmp_path)
    job = jobs.change(jobs.create(new_job("a")), status="failed", stage=0)

    assert [stage.state for stage in stages_of(job)] == ["failed", "not begun"]


def test_a_job_tells_how_often_it_was_started(tmp_path: Path) -> None:
    jobs = MadeUpJobs(tmp_path)
    job = jobs.change(
        jobs.create(new_job("a")),
        status="completed",
        attempt=3,
        started=BEGAN,
        ended=BEGAN + timedelta(minutes=2),
    )

    facts = {one.label: one.text for one in facts_of(job, BEGAN)}

    assert facts["Took"] == "2 min"
    assert facts["Starts"] == "3: its runner was ended 2 times"


def test_the_address_of_a_job_is_quoted(tmp_path: Path) -> None:
    job = MadeUpJobs(tmp_path).create(new_job("a/../b?c"))

    assert job_path(job) == "jobs/optimization/a%2F..%2Fb%3Fc"

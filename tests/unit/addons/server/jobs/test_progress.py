"""How far a job is, from the events of its command."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import pytest

from packager.addons.server.jobs.progress import (
    Progress,
    count_finished,
    read_progress,
    take_event,
    write_progress,
)
from tests.support.cases import cases, read_tables


def step(name: str, state: str, **more: Any) -> dict[str, Any]:
    return {
        "event": "step",
        "step": name,
        "state": state,
        "detail": "",
        "bytes": 0,
        "total": None,
        "seconds": 0.0,
        "eta_s": None,
        **more,
    }


def after(*events: dict[str, Any], progress: Progress | None = None) -> Progress:
    now = progress or Progress()
    for event in events:
        now = count_finished(take_event(now, event))
    return now


def test_the_step_that_runs_is_the_first_that_is_not_finished() -> None:
    progress = after(
        step("plan", "started"),
        step("plan", "finished", seconds=0.5),
        step("publish", "started"),
        step("engine", "started"),
    )

    assert [[one.step, one.is_finished] for one in progress.steps] == read_tables(__file__)["steps"]
    assert progress.step is not None
    assert progress.step.step == "publish"


def test_a_step_that_runs_twice_is_listed_twice() -> None:
    progress = after(step("plan", "finished"), step("plan", "started"))

    assert [one.is_finished for one in progress.steps] == [True, False]


@cases("shares")
def test_share_and_time_left(
    events: list[dict[str, Any]], share: float | None, left_s: float | None
) -> None:
    progress = after(*events)

    assert (progress.share, progress.left_s) == (share, left_s)


@cases("others")
def test_what_is_no_event_changes_nothing(event: dict[str, Any]) -> None:
    assert take_event(Progress(), event) == Progress()


def test_values_of_other_types_count_as_not_told() -> None:
    progress = after(
        step("a", "running", bytes="x", total=[], seconds=None, eta_s=True, detail=None)
    )

    assert progress.step is not None
    assert (progress.share, progress.left_s, progress.step.detail) == (None, None, "")


def test_texts_and_steps_of_a_stranger_are_bounded() -> None:
    progress = after(*(step("x" * 1000, "finished", detail="y" * 1000) for _ in range(300)))

    assert len(progress.steps) == 200
    assert (len(progress.steps[0].step), len(progress.steps[0].detail)) == (200, 200)


def test_starts_are_forgotten_when_a_command_gets_further_than_before() -> None:
    before = Progress(starts=7, most_finished=1)

    same = after(step("base", "finished"), progress=before)
    further = after(step("model", "finished"), progress=same)

    assert (same.starts, further.starts) == (7, 1)
    assert further.most_finished == 2


def test_a_file_is_read_as_it_was_written_and_only_by_its_owner(tmp_path: Path) -> None:
    progress = after(step("a", "running", bytes=1, total=2, eta_s=1.5))

    write_progress(tmp_path, progress)

    assert read_progress(tmp_path) == progress
    assert stat.S_IMODE((tmp_path / "progress.json").stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["progress.json"]


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"stage": "x"}', b'{"stage": 1, "stage": 2}'])
def test_a_damaged_file_is_nothing_done(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "progress.json").write_bytes(data)

    assert read_progress(tmp_path) == Progress()


def test_no_file_is_nothing_done_and_no_folder_is_no_error(tmp_path: Path) -> None:
    assert read_progress(tmp_path) == Progress()
    write_progress(tmp_path / "gone", Progress(stage=1))

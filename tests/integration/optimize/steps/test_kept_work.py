"""What a run that did not end well leaves for the next one."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from packager.cli.app import app
from packager.cli.wiring.settings import Settings
from packager.core.errors import StepFailed, UsageError
from packager.core.recipe import Estimate, Step
from packager.optimize.steps.capacity import free_bytes
from packager.optimize.steps.failures import StepDiskFull, StepRejected, StepTooLarge
from packager.optimize.steps.resume import kept_bytes, kept_work
from packager.optimize.steps.tools.environments import Environments
from tests.integration.optimize.steps.conftest import Run
from tests.support.cache_entries import DRAFT
from tests.support.commandline import TINY
from tests.support.known import known
from tests.support.tool_steps import executor, step


def kept(do: str, **parameters: object) -> Step:
    env = dict(DRAFT.invocation.env)
    return step(do, key=DRAFT, env=env, resumable=True, parameters=parameters)


def unfinished(root: Path) -> list[str]:
    return sorted(path.name for path in (root / "work-unfinished").rglob("*") if path.is_file())


def test_the_next_run_goes_on_where_the_last_failed(tmp_path: Path, into: Path, run: Run) -> None:
    with pytest.raises(StepFailed) as failure:
        run(kept("count_up", until=3))
    assert "goes on" in failure.value.hint
    with pytest.raises(StepFailed):
        run(kept("count_up", until=3))
    assert unfinished(tmp_path) == ["count"]
    run(kept("count_up", until=3))

    assert (into / "count").read_text() == "xxx"
    assert unfinished(tmp_path) == [], "what ended well needs no second try"


def test_another_input_begins_anew(tmp_path: Path, run: Run) -> None:
    with pytest.raises(StepFailed):
        run(kept("count_up", until=2))

    other = DRAFT.model_copy(update={"calibration": None})
    with pytest.raises(StepFailed):
        run(replace(kept("count_up", until=2), key=other))

    assert unfinished(tmp_path) == ["count", "count"]


def test_asking_for_it_begins_anew(run: Run) -> None:
    with pytest.raises(StepFailed):
        run(kept("count_up", until=2))

    with pytest.raises(StepFailed):
        run(kept("count_up", until=2), restart=True)


def test_nothing_is_kept_of_what_can_never_be_finished(tmp_path: Path, run: Run) -> None:
    with pytest.raises(StepRejected):
        run(kept("refuse"))

    assert list((tmp_path / "work-unfinished").iterdir()) == []


def test_a_step_that_keeps_nothing_or_has_no_key_works_in_a_new_directory(tmp_path: Path) -> None:
    for other in (step("copy", key=DRAFT, env=dict(DRAFT.invocation.env)), step("copy")):
        with kept_work(tmp_path, other) as place:
            assert place is None
    with kept_work(tmp_path, step("copy", resumable=True)) as place:
        assert place is None


def test_two_runs_never_share_a_directory(tmp_path: Path) -> None:
    with kept_work(tmp_path, kept("copy")) as first, kept_work(tmp_path, kept("copy")) as second:
        assert first is not None
        assert second is None


def test_an_interrupt_leaves_the_work(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), kept_work(tmp_path, kept("copy")) as place:
        assert place is not None
        (place / "half").touch()
        raise KeyboardInterrupt

    with kept_work(tmp_path, kept("copy")) as place:
        assert [path.name for path in known(place).iterdir()] == ["half"]


def test_a_full_disk_ends_typed_and_says_where_and_how_it_goes_on(tmp_path: Path, run: Run) -> None:
    with pytest.raises(StepDiskFull) as failure:
        run(kept("full_disk"))

    assert failure.value.hint == (
        f"free some space on the file system of '{tmp_path / 'work'}', or put the cache elsewhere "
        "with --cache-dir; the same command goes on where this one ended"
    )
    assert len(list((tmp_path / "work-unfinished").iterdir())) == 1


def test_what_is_kept_already_needs_no_space_again(tmp_path: Path, tools: Environments) -> None:
    large = replace(kept("copy"), needs=Estimate(disk_bytes=free_bytes(tmp_path) + 10**9))
    admit = executor(tmp_path, tools=tools).admit
    with pytest.raises(StepTooLarge):
        admit(large)

    with pytest.raises(KeyboardInterrupt), kept_work(tmp_path / "work-unfinished", large) as place:
        assert place is not None
        (place / "below").mkdir()
        os.truncate(os.open(place / "below/layer", os.O_CREAT | os.O_WRONLY), 3 * 10**9)
        raise KeyboardInterrupt

    assert kept_bytes(tmp_path / "work", large) == 3 * 10**9
    assert kept_bytes(tmp_path / "work", replace(large, resumable=False)) == 0
    admit(large)


def test_what_nobody_went_on_with_is_removed(tmp_path: Path) -> None:
    old, young = tmp_path / "old", tmp_path / "young"
    long_ago = time.time() - 15 * 24 * 3600
    for place in (old, young):
        place.mkdir()
        (place / "checkpoint").touch()
    os.utime(old, (long_ago, long_ago))

    with kept_work(tmp_path, kept("copy")) as place:
        assert place is not None
        assert not old.exists()
        assert young.exists()


@pytest.mark.parametrize(("words", "restart"), [((), False), (("--restart",), True)])
def test_a_build_forgets_interrupted_work_when_asked(
    words: tuple[str, ...], restart: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[bool] = []

    def services_for(settings: Settings) -> None:
        seen.append(settings.restart)
        raise UsageError("enough was seen")

    monkeypatch.setattr("packager.cli.commands.build.services_for", services_for)
    command = ("build", "--model", str(TINY), "--instance", "local", "--base", "scratch")

    CliRunner().invoke(app, [*command, "--dry-run", *words])

    assert seen == [restart]

"""`packager migrate`: an old LMI configuration in today's keys."""

from __future__ import annotations

from pathlib import Path

from tests.support.commandline import Packager

OLD = (Path(__file__).parent / "corpus" / "lmi-10.properties").read_text("utf-8")


def test_the_dropped_draft_keys_become_one_that_works(packager: Packager, tmp_path: Path) -> None:
    (tmp_path / "serving.properties").write_text(OLD)

    done = packager("migrate", "serving.properties", status=0)

    lines = done.out.splitlines()
    assert "engine=Python" in lines
    assert "option.tensor_parallel_degree=4" in lines
    [draft] = [line for line in lines if line.startswith("option.speculative_config=")]
    assert '"num_speculative_tokens":4' in draft
    assert "option.speculative_length" in done.err


def test_a_line_that_is_no_setting_is_named(packager: Packager, tmp_path: Path) -> None:
    (tmp_path / "serving.properties").write_text("engine=MPI\nnonsense\n")

    done = packager("migrate", "serving.properties", status=2)

    assert "line 2" in done.err

"""`packager plan --second-opinion`: what is refused before anything is planned."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.commandline import TINY, Packager

PLAN = ("plan", "--model", str(TINY), "--second-opinion")


def test_a_tool_that_is_not_installed_is_named_with_its_command(
    packager: Packager, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PACKAGER_TOOLS", str(tmp_path / "tools"))

    done = packager(*PLAN, "--instance", "ml.p5.4xlarge")

    assert done.status == 69
    assert "packager tools install aiconfigurator" in done.err
    assert done.out == ""
    assert not (tmp_path / "tools").exists()


def test_several_instances_have_no_second_opinion(packager: Packager) -> None:
    done = packager(*PLAN, "--instance", "all")

    assert done.status == 2
    assert "--second-opinion is of one plan" in done.err

"""Layouts over devices, asked for on the command line."""

from __future__ import annotations

import pytest

from packager.cli.app import run
from tests.support.commandline import TINY

ON_EIGHT = ["--model", str(TINY), "--instance", "ml.p5.48xlarge", "--family", "vllm"]


def test_copies_are_planned_and_one_can_be_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", *ON_EIGHT]) == 0
    assert "8 devices: TP 1 x 8 copies (data parallel)" in capsys.readouterr().out

    assert run(["plan", *ON_EIGHT, "--tp-degree", "2", "--dp-degree", "1"]) == 0
    text = capsys.readouterr().out
    assert "2 of 8 devices: TP 2" in text
    assert "6 stay idle: DP 1 is requested" in " ".join(text.split())


def test_no_image_is_built_for_several_machines(capsys: pytest.CaptureFixture[str]) -> None:
    on_two = [*ON_EIGHT, "--nodes", "2"]

    assert run(["plan", *on_two]) == 0
    assert "2 nodes" in capsys.readouterr().out
    assert run(["build", *on_two, "--base", "scratch", "--dry-run"]) == 3
    assert "nodes-not-rendered" in capsys.readouterr().err


def test_experts_of_a_dense_model_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", *ON_EIGHT, "--ep"]) == 3
    assert "the model has no experts" in capsys.readouterr().err

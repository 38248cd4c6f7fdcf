"""The script that fits the speed model: it finds what made the points, leaves out whole groups."""

from __future__ import annotations

import importlib
import json
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

from tests.support.places import ROOT
from tests.unit.scripts.test_fit_speed import data as data
from tests.unit.scripts.test_fit_speed import scripts as scripts


def test_errors_are_printed_by_cell_and_kind_and_end_in_one_object(
    data: Path,
    scripts: tuple[ModuleType, ModuleType],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    predict = importlib.import_module("predict")
    copied = data / scripts[1].CONFIGS
    some = next(copied.iterdir()).read_bytes()  # stands for every published model
    models = tomllib.loads((ROOT / "benchmarks/published_models.toml").read_text(encoding="utf-8"))
    for name in {row["config"] for row in models.values() if "config" in row}:
        path = copied / f"{name.replace('/', '--')}_config.json"
        if not path.exists():
            path.write_bytes(some)
    monkeypatch.setattr(sys, "argv", ["predict.py", "--data", str(data)])

    predict.main()

    lines = capsys.readouterr().out.splitlines()
    report = json.loads(lines[-1])
    assert report["kinds"]["dense"]["points"] == report["kinds"]["moe"]["points"] == 54
    assert report["kinds"]["dense"]["curves"] == 18
    assert report["kinds"]["dense"]["tpot_median"] < 0.05
    assert set(report["cells"]) == {"vllm H200 dense", "vllm H200 moe"}
    assert {"model_left_out_median", "tpot_held"} <= set(report["kinds"]["moe"])
    assert len(report["published"]) == 26
    assert isinstance(report["targets_met"], bool)
    assert any(line.startswith("vllm H200 dense") for line in lines)

"""No option of any engine, however it is spelled, lets code of a model run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from packager.cli import app
from tests.support.commandline import TINY


@pytest.mark.parametrize("option", ["trust_remote_code=true", "TRUST_REMOTE_CODE=True"])
def test_a_plan_with_code_is_refused(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ("--instance", "local", "--engine-option", option, "--format", "json")

    assert app.run(["plan", "--model", str(TINY), *asked]) == 3

    error = json.loads(capsys.readouterr().err)
    assert "remote-code" in [found["code"] for found in error["findings"]]


def test_request_files_ask_for_no_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    request = tmp_path / "request.toml"
    request.write_text('[engine_options]\nhf-overrides = "{\\"trust_remote_code\\": true}"\n')
    local = ("--model", str(TINY), "--instance", "local")

    assert app.run(["plan", "--request", str(request), *local]) == 3
    assert "error    remote-code: 'hf-overrides' lets the engine" in capsys.readouterr().err

"""No option of any engine, however it is spelled, lets code of a model run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from packager.cli import app
from tests.support.commandline import TINY


@pytest.mark.parametrize(
    ("family", "instance", "more"),
    [
        ("vllm", "local", ()),
        ("vllm", "ml.g5.xlarge", ()),
        ("sglang", "ml.g5.xlarge", ()),
        ("tgi", "ml.g5.xlarge", ()),
        ("lmi", "ml.g5.xlarge", ()),
        ("neuron", "ml.inf2.xlarge", ()),
    ],
)
@pytest.mark.parametrize(
    "option", ["trust_remote_code=true", "trust-remote-code=1", "TRUST_REMOTE_CODE=True"]
)
def test_every_family_refuses_code_with_the_same_finding(
    family: str,
    instance: str,
    more: tuple[str, ...],
    option: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked = ("--family", family, "--instance", instance, "--engine-option", option, *more)

    status = app.run(["plan", "--model", str(TINY), *asked, "--format", "json"])

    error = json.loads(capsys.readouterr().err)
    assert status == 3
    assert "remote-code" in [found["code"] for found in error["findings"]]


def test_a_request_file_cannot_ask_for_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    request = tmp_path / "request.toml"
    request.write_text('[engine_options]\nhf-overrides = "{\\"trust_remote_code\\": true}"\n')
    local = ("--model", str(TINY), "--instance", "local")

    assert app.run(["plan", "--request", str(request), *local]) == 3
    assert "error    remote-code: 'hf-overrides' lets the engine" in capsys.readouterr().err

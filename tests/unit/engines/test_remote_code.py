"""No option of any engine, however it is spelled, lets code of a model run."""

from __future__ import annotations

import pytest

from packager.cli import app
from packager.engines.shared import asks_for_code
from tests.support.cases import cases


@cases("asks")
def test_code_is_asked_for_in_any_spelling(name: str, value: str) -> None:
    assert asks_for_code(name, value)


@cases("asks for none")
def test_other_options_ask_for_none(name: str, value: str) -> None:
    assert not asks_for_code(name, value)


@pytest.mark.parametrize("command", [("smoke", "image:1"), ("draft", "measure", "image:1")])
def test_the_environment_of_a_container_cannot_ask_for_code(
    command: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    # draft measure looks the image up in an engine only after that
    assert app.run([*command, "--env", "TRUST_REMOTE_CODE=true"]) == 2

    assert "lets the server run code from the model's files" in capsys.readouterr().err

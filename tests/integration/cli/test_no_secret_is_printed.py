"""Credentials that are given never come back in a message, whatever goes wrong."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from huggingface_hub import close_session

from packager.cli import app
from tests.support.cases import read_tables
from tests.support.commandline import TINY

SECRET = "canary-7f3a9c"
AT = f"user:{SECRET}@127.0.0.1:1"  # nobody listens on port 1

TABLES = read_tables(__file__)
COMMANDS = TABLES["commands"]


@pytest.fixture(autouse=True)
def sessions() -> Iterator[None]:
    """Close the hub's session: it keeps the proxy of the environment that it was made in."""
    yield
    close_session()


@pytest.mark.parametrize("output_format", ["text", "json"])
@pytest.mark.parametrize("command", COMMANDS)
def test_no_secret_is_printed(
    command: str,
    output_format: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name, value in TABLES["environment"].items():
        monkeypatch.setenv(name, value.replace("{at}", AT).replace("{secret}", SECRET))
    for name in ("NO_PROXY", "no_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    words = shlex.split(COMMANDS[command])
    arguments = [word.format(at=AT, secret=SECRET, tiny=TINY) for word in words]
    if arguments[:2] != ["warm", "one"]:
        arguments += ["--format", output_format]

    status = app.run(arguments)

    printed = "".join(capsys.readouterr())
    assert status != 70, printed
    assert SECRET not in printed

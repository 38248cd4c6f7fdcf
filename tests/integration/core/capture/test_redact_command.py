"""The user's command that gets every row."""

from __future__ import annotations

import sys

import pytest

from packager.core.capture.redaction import CommandFailed, RedactCommand


def program(code: str) -> list[str]:
    return [sys.executable, "-c", f"import json, sys, time\nfor line in sys.stdin:\n  {code}"]


def test_a_command_changes_and_drops_rows() -> None:
    keep = "print('' if 'drop' in line else line.replace('name', 'X').strip(), flush=True)"
    command = RedactCommand(program(keep), patience_s=30)

    found = [command.redact({"a": text}) for text in ("my name", "drop", "é" * 200_000)]

    command.close()
    assert found == [{"a": "my X"}, None, {"a": "é" * 200_000}]


@pytest.mark.parametrize("code", ["time.sleep(60)", "sys.exit(1)", "print('no row', flush=True)"])
def test_a_row_that_a_command_does_not_give_back_is_lost(code: str) -> None:
    command = RedactCommand(program(code), patience_s=1 if "sleep" in code else 30)

    with pytest.raises(CommandFailed):
        command.redact({"a": 1})

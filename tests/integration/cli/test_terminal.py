"""What every command prints goes through one place, which escapes it."""

from __future__ import annotations

import pytest

from packager.cli import app
from tests.support.cases import cases


@cases("arguments_cannot_forge_a_line")
@pytest.mark.parametrize("output_format", ["text", "json"])
def test_arguments_cannot_forge_a_line(
    arguments: list[str], output_format: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status = app.run([*arguments, "--format", output_format])

    printed = "".join(capsys.readouterr())
    assert status in {2, 65, 66}, printed
    assert not [line for line in printed.splitlines() if line.startswith("error: forged")]
    assert "\x1b" not in printed

"""What every command prints goes through one place, which escapes it."""

from __future__ import annotations

import pytest

from packager.cli import app


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(["plan\nerror: forged"], id="command"),
        pytest.param(["plan", "--no\nerror: forged"], id="option"),
        pytest.param(["plan", "extra\nerror: forged"], id="argument"),
        pytest.param(["plan", "--tp-degree", "1\nerror: forged"], id="number"),
        pytest.param(["plan", "--model", "a", "--instance", "x\nerror: forged"], id="instance"),
        pytest.param(["plan", "--model", "a\nerror: forged", "--instance", "local"], id="model"),
        pytest.param(["list", "families\u2028error: forged"], id="choice"),
        pytest.param(["inspect", "oci:a\nerror: forged"], id="layout"),
        pytest.param(["explain", "no\x1b[31m\nerror: forged"], id="code"),
    ],
)
@pytest.mark.parametrize("output_format", ["text", "json"])
def test_arguments_cannot_forge_a_line(
    arguments: list[str], output_format: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status = app.run([*arguments, "--format", output_format])

    printed = "".join(capsys.readouterr())
    assert status in {2, 65, 66}, printed
    assert not [line for line in printed.splitlines() if line.startswith("error: forged")]
    assert "\x1b" not in printed

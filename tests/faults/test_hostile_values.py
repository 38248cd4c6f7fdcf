"""Values on the command line and in the environment that nobody sane gives: typed, and early."""

from __future__ import annotations

from pathlib import Path

import pytest

from packager.cli import app
from tests.faults.test_hostile_documents import DOCUMENTED, faults_of
from tests.support.cases import cases, content_of, read_tables
from tests.support.commandline import TINY

VALUES = {row["id"]: content_of(row).decode() for row in read_tables(__file__)["contents"]}
VALUES["half a surrogate pair"] = "\udce9"
MODEL = ("--model", str(TINY), "--instance", "local")


def run(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """Run a command; return what is wrong with how it ended, "" where nothing is."""
    status = app.run(arguments)
    printed = "".join(capsys.readouterr())
    if status not in DOCUMENTED:
        return f"status {status}: {printed[-1500:]}"
    faults = faults_of(printed)
    # a value that is the user's own may be repeated, once in the message and once in the hint
    return "" if "characters were printed" in faults and len(printed) < 650_000 else faults


@pytest.fixture(autouse=True)
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let commands find bugs told whole, and no hub, no bucket and no engine."""
    monkeypatch.setenv("PACKAGER_DEBUG", "1")
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")
    monkeypatch.chdir(tmp_path)


def words_of(command: str, value: str = "") -> list[str]:
    given = command.replace("{tiny}", str(TINY)).split()
    return [word.replace("{}", value) for word in given]


@cases("commands")
def test_a_hostile_value_ends_in_a_documented_status(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    ends = {name: run(words_of(command, value), capsys) for name, value in VALUES.items()}

    wrong = {name: why for name, why in ends.items() if why}
    assert wrong == {}, "\n".join(f"{name}: {why}" for name, why in wrong.items())


@cases("variables")
def test_a_hostile_variable_ends_in_a_documented_status(
    variable: str, command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ends = {}
    for name, value in VALUES.items():
        monkeypatch.setenv(variable, value)
        ends[name] = run(words_of(command), capsys)

    wrong = {name: why for name, why in ends.items() if why}
    assert wrong == {}, "\n".join(f"{name}: {why}" for name, why in wrong.items())


@pytest.mark.parametrize("option", ["--max-batch", "--max-total-tokens", "--calibration-seed"])
def test_a_number_that_no_engine_takes_is_refused(
    option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = option.removeprefix("--").replace("-", "_")
    request = tmp_path / "request.toml"
    request.write_text(f"{name} = 2147483648\n")

    assert app.run(["plan", *MODEL, option, "2147483648"]) == 2
    assert app.run(["plan", *MODEL, "--request", str(request)]) == 2
    said = capsys.readouterr().err
    assert f"{name} 2147483648: input should be less than or equal to 2147483647" in said
    assert "and at most 2147483647" in said

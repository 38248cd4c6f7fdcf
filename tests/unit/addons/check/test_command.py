"""`packager check`: what it prints in each format, and the status that it ends with."""

from __future__ import annotations

import io
import json
from pathlib import Path
from types import SimpleNamespace

import jsonschema
import pytest

from packager.addons.check.sarif import uri_of
from packager.addons.check.text import MAX_BYTES
from packager.cli.app import run
from tests.support.cases import cases_of, read_tables
from tests.support.checked import Check
from tests.support.commandline import TINY
from tests.support.places import ROOT

cases = cases_of(__file__)
TABLES = read_tables(__file__)

WARNED = "SM_VLLM_MODEL=m\nSM_VLLM_TRUST_REMOTE_CODE=true\n"
WRONG = "SM_VLLM_MODEL=m\nSM_VLLM_SED=1\n"
FOR = "--for=vllm:0.27.1"

# Of the OASIS schema of SARIF 2.1.0 (sarif-schema-2.1.0.json, errata 01) what is used here:
# which properties there are, which must be there, and what they hold.
SARIF = ROOT / "tests/unit/addons/check/corpus/sarif.json"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "warned.env").write_text(WARNED)
    (tmp_path / "wrong.env").write_text(WRONG)
    (tmp_path / "right.env").write_text("SM_VLLM_MODEL=m\n")
    (tmp_path / "other.sh").write_text("make all  # then vllm serve m\n")
    (tmp_path / "large.bin").write_bytes(b"a" * (MAX_BYTES + 1))
    (tmp_path / "other.md").write_text("vllm serve m\n")
    (tmp_path / "other.yaml").write_text("- colour: green\n")
    (tmp_path / "unread.yaml").write_text("run: {{ vllm serve m }} x\n")
    return tmp_path


@cases("the_status_tells_what_was_found")
def test_the_status_tells_what_was_found(
    here: Path, arguments: list[str], status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["check", *arguments, FOR]) == status


def test_text_has_the_place_first_and_the_summary_on_stderr(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(["check", "wrong.env", FOR])

    printed = capsys.readouterr()
    assert printed.out == (
        "wrong.env:2:1: error key-dropped vLLM 0.27.1 has no option 'sed'\n"
        "    hint: did you mean 'seed'?\n"
    )
    assert printed.err == "checked wrong.env as vLLM 0.27.1, from --for\nfound 1 error\n"


def test_json_has_every_finding_with_its_place(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(["check", "wrong.env", FOR, "--format=json"])

    document = json.loads(capsys.readouterr().out)
    assert document["findings"] == TABLES["findings"]
    assert document["counts"] == {"error": 1, "warning": 0, "note": 0}
    assert document["checked"][0]["engine"] == TABLES["engine"]


def test_sarif_is_what_code_hosts_take(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(["check", "wrong.env", "warned.env", FOR, "--format=sarif"])

    document = json.loads(capsys.readouterr().out)
    jsonschema.Draft7Validator(json.loads(SARIF.read_text("utf-8"))).validate(document)
    [found, *_] = document["runs"][0]["results"]
    rules = document["runs"][0]["tool"]["driver"]["rules"]
    assert found["ruleId"] == rules[found["ruleIndex"]]["id"] == "key-dropped"
    assert found["level"] == "error"
    assert found["locations"][0]["physicalLocation"] == TABLES["location"]
    assert rules[0]["help"]["text"]


@cases("a_path_becomes_a_uri")
def test_a_path_becomes_a_uri(file: str, uri: str) -> None:
    assert uri_of(file) == uri


def test_stdin_is_a_file_called_dash(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    data = io.BytesIO(b"vllm serve m --sed 1\n")
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=data))

    assert run(["check", "-", FOR]) == 3
    assert capsys.readouterr().out.startswith("-:1:14: error key-dropped")


@cases("held_against")
def test_a_model_and_an_instance_are_held_against_the_settings(
    here: Path, capsys: pytest.CaptureFixture[str], text: str, command: list[str], said: str
) -> None:
    *asked, more = (word.format(tiny=TINY) for word in command)
    (here / asked[0]).write_text(text)

    assert run(["check", *asked]) == 0
    assert run(["check", *asked, more]) == 3
    assert said in capsys.readouterr().out


def test_what_is_certain_is_mended_and_nothing_else(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken, whole = TABLES["mended"]["broken"], TABLES["mended"]["whole"]
    (here / "a.sh").write_text(broken)
    (here / "a.sh").chmod(0o751)

    assert run(["check", "a.sh", FOR, "--fix", "--output=b.sh"]) == 3
    assert ((here / "a.sh").read_text(), (here / "b.sh").read_text()) == (broken, whole)
    assert "wrote b.sh with 6 changes" in capsys.readouterr().err

    assert run(["check", "a.sh", FOR, "--fix", "--in-place"]) == 3
    assert (here / "a.sh").read_text() == whole
    assert (here / "a.sh").stat().st_mode & 0o777 == 0o751


def test_a_file_full_of_mistakes_is_told_of_in_part(check: Check) -> None:
    report = check({"a.env": "".join(f"SM_VLLM_X{number}=1\n" for number in range(200))})

    assert len(report.remarks) == 61
    assert report.remarks[-1].finding.code == "findings-left-out"
    assert "more findings" in report.remarks[-1].finding.message

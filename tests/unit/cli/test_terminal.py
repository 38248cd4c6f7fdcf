"""What every command prints goes through one place, which escapes it."""

from __future__ import annotations

import ast
import io
import json
import logging
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from packager.cli import app, terminal
from tests.support.cases import read_tables

PACKAGE = Path(app.__file__).resolve().parent.parent
WRITERS = {
    "cli/terminal.py",
    "cli/progress.py",  # asks whether stderr is a terminal
    "cli/ticker.py",  # gives the stream to displays
    "cli/app.py",  # flushes
    "cli/streams.py",  # opens and closes them
    "cli/completion/answer.py",  # what a shell reads has tabs; unprintable words are left out
    "addons/bench/load/template_sandbox.py",  # a helper process whose stdout is a pipe of ours
    "optimize/steps/supervise.py",  # a helper process whose stderr is the log of a step
    "models/hub.py",  # asks whether stderr is a terminal
}


def writes(source: str) -> list[str]:
    """Find calls that print, and mentions of the standard streams."""
    names = {"print", "click.echo", "click.secho", "click.echo_via_pager"}
    return [
        f"{ast.unparse(node)[:40]} in line {node.lineno}"
        for node in ast.walk(ast.parse(source))
        if (isinstance(node, ast.Call) and ast.unparse(node.func) in names)
        or (isinstance(node, ast.Attribute) and ast.unparse(node) in {"sys.stdout", "sys.stderr"})
    ]


def test_only_the_terminal_module_prints() -> None:
    found = {
        str(path.relative_to(PACKAGE)): writes(path.read_text(encoding="utf-8"))
        for path in sorted(PACKAGE.rglob("*.py"))
        if str(path.relative_to(PACKAGE)) not in WRITERS
    }

    assert {path: lines for path, lines in found.items() if lines} == {}


@pytest.mark.parametrize(
    "print_it",
    [
        terminal.print_line,
        lambda text: terminal.print_lines(["first", text]),
        lambda text: terminal.print_text(text.replace("\n", " ")),
        terminal.print_json,
        terminal.note,
        lambda text: terminal.note_lines(["first", text]),
        terminal.note_json,
        terminal.note_log,
        terminal.warn,
    ],
    ids=["line", "lines", "text", "json", "note", "notes", "json note", "log", "warning"],
)
def test_no_way_of_printing_passes_on_what_a_terminal_obeys(
    print_it: object, capsys: pytest.CaptureFixture[str]
) -> None:
    assert callable(print_it)

    print_it("name\nerror: forged\r\x1b[2J\x9b\u2028\u202e\u2066\u200b\ud800")

    printed = "".join(capsys.readouterr())
    assert printed.endswith("\n")
    assert not [line for line in printed.splitlines() if line.startswith("error: forged")]
    assert not set(printed) & set("\r\x1b\x9b\u2028\u202e\u2066\u200b\ud800")


@pytest.mark.parametrize("say", [terminal.note, terminal.warn, terminal.note_log])
def test_a_password_in_an_address_is_not_shown_on_stderr(
    say: Callable[[str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    say("no answer from https://user:canary@host/a")

    assert "no answer from https://***@host/a" in capsys.readouterr().err


def test_an_encoding_without_a_letter_fails_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="latin-1"))

    terminal.print_line("größe 模型")
    terminal.print_json({"größe": "模型🤗"})
    sys.stdout.flush()

    line, _, document = raw.getvalue().decode("latin-1").partition("\n")
    assert line == "größe \\u6a21\\u578b"
    assert json.loads(document) == {"größe": "模型🤗"}


def test_what_a_library_logs_stays_in_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    before = logging.getLogRecordFactory()
    try:
        terminal.escape_logs()
        handler = logging.StreamHandler(sys.stderr)
        logger = logging.getLogger("a library")
        logger.addHandler(handler)
        logger.warning("the hub says: %s", "well\nerror: forged\u202e")
    finally:
        logging.setLogRecordFactory(before)
        logger.removeHandler(handler)

    assert capsys.readouterr().err == "the hub says: well\\nerror: forged\\u202e\n"


def test_wrong_usage_reads_like_every_other_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(["plan", "--tp-degree", "x"]) == 2

    assert capsys.readouterr().err.splitlines() == read_tables(__file__)["printed_error"]

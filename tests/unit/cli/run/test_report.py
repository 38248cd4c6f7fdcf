"""What `run` and `ps` print."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from packager.cli.run.clients import INVOCATIONS, Address
from packager.cli.run.containers import Run, name_taken, no_such_run
from packager.cli.run.ports import port_taken
from packager.cli.run.report import (
    Serving,
    age_of,
    end_lines,
    program_text,
    run_document,
    runs_report,
    serving_document,
    serving_lines,
    state_of,
)
from packager.core.reports.text import report_lines
from tests.support.cases import as_type, cases, read_tables

TABLES = read_tables(__file__)

RUN = Run(**TABLES["run"], exit_code=None)
ENDED = replace(RUN, name="gone", status="exited", exit_code=70, url="", started="")
NOW = datetime(2026, 11, 23, 1, 58, tzinfo=UTC)
SERVING = as_type(TABLES["serving"], Serving)


def test_a_table_of_runs() -> None:
    assert report_lines(runs_report([(RUN, True), (ENDED, False)], NOW)) == TABLES["printed"]


@cases("states", changes={})
def test_a_state(changes: dict[str, Any], answers: bool, state: str) -> None:
    assert state_of(replace(RUN, **changes), answers=answers) == state


@cases("ages")
def test_an_age(started: str, age: str) -> None:
    assert age_of(replace(RUN, started=started), NOW) == age


def test_a_run_for_programs() -> None:
    told = run_document(ENDED, answers=False)

    assert (told.pop("url"), told.pop("started")) == (None, None)
    assert told == TABLES["ended"]


def test_what_answers_comes_first_and_the_line_for_a_shell_alone_on_its_line() -> None:
    lines = serving_lines(SERVING)

    assert lines[0] == "tiny-llama answers at http://127.0.0.1:8080"
    assert lines[2].startswith("curl -sS http://127.0.0.1:8080/v1/chat/completions ")
    assert len(lines) == 3
    assert program_text(SERVING).startswith("from openai import OpenAI\n\nclient = ")


def test_a_server_without_names_has_a_line_for_a_shell_alone() -> None:
    bare = Address(url="http://127.0.0.1:8080", endpoint=INVOCATIONS, model="")
    serving = replace(SERVING, address=bare)

    assert program_text(serving) == ""
    assert serving_lines(serving)[0] == "answers at http://127.0.0.1:8080"
    assert serving_document(serving)["python"] is None


def test_a_program_reads_the_same() -> None:
    told = serving_document(SERVING)

    assert told["url"] == "http://127.0.0.1:8080"
    assert told["endpoint"] == "/v1/chat/completions"
    assert told["seconds"] == 12.3
    assert told["curl"] == serving_lines(SERVING)[2]
    assert told["python"] == program_text(SERVING)


def test_how_a_run_is_ended_depends_on_where_it_runs() -> None:
    assert end_lines(SERVING) == ["Ctrl-C ends it, running requests first"]
    assert end_lines(replace(SERVING, detached=True)) == [
        "`packager logs tiny` shows its log, `packager stop tiny` ends it"
    ]


def test_errors_name_what_is_in_the_way() -> None:
    assert name_taken(RUN).message == "a run named 'tiny' is there already at http://127.0.0.1:8080"
    assert port_taken(80, "the run 'x'").message == "port 80 is taken by the run 'x'"
    assert port_taken(80, "").message == "port 80 is taken"
    assert no_such_run("tiyn", ["tiny"]).hint == "did you mean 'tiny'?"
    assert "`packager ps`" in no_such_run("else", ["tiny"]).hint
    assert "`packager run MODEL`" in no_such_run("tiny", []).hint

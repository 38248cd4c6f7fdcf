"""The first error of an engine's log.

The logs of vLLM on processors are real, recorded with the image of examples/tiny-llama and vLLM
0.32.0 in November 2026, without the lines between start and failure.  Those of other engines
have the lines of reports in their repositories, shortened.
"""

from __future__ import annotations

from packager.cli.serving.engine_log import LogError, excerpt, first_error
from tests.support.cases import cases_of, read_tables
from tests.support.known import known
from tests.support.places import DATA

cases = cases_of(__file__, "logs")
TABLES = read_tables(__file__, "logs")


LOGS = DATA / "engine_logs"


def error_of(name: str) -> LogError:
    return known(first_error((LOGS / f"{name}.log").read_text(encoding="utf-8")))


@cases("causes")
def test_the_cause_is_found_before_what_follows_from_it(name: str, summary: str) -> None:
    error = error_of(name)

    assert error.summary.startswith(summary)
    assert any(summary in line for line in error.lines)


def test_lines_of_other_processes_between_those_of_a_traceback_are_left_out() -> None:
    error = error_of("lmi-out-of-memory")

    assert list(error.lines) == TABLES["lines_of_djl"]
    assert error.number == 7


CHAIN = TABLES["chain"]


@cases("of_a_chain_the_cause_counts_and_what_was_handled_does_not")
def test_of_a_chain_the_cause_counts_and_what_was_handled_does_not(link: str, summary: str) -> None:
    error = known(first_error(CHAIN.format(link=link)))

    assert error.summary == summary


@cases("ends")
def test_other_ends(log: str, summary: str) -> None:
    error = first_error(log)

    assert (error.summary if error else "").startswith(summary)
    assert bool(error) == bool(summary)


@cases("a_process_that_lost_another_may_say_so_first")
def test_a_process_that_lost_another_may_say_so_first(consequence: str) -> None:
    start = (
        '[2026-03-03 03:53:36 TP{0}] Scheduler hit: Traceback (most recent call last):\n  File "a"'
    )
    log = f"{start.format(0)}\n{consequence}\n{start.format(1)}\nMemoryError: none left\n"

    error = known(first_error(log))

    assert error.summary == "MemoryError: none left"


def test_only_consequences_are_better_than_nothing_and_a_summary_is_cut() -> None:
    alone = "Traceback (most recent call last):\n  x\nRuntimeError: See root cause above\n"

    assert known(first_error(alone)).summary == "RuntimeError: See root cause above"
    assert len(known(first_error(f"x: error: {'y' * 1000}\n")).summary) == 300


def test_a_long_log_is_its_first_error_and_its_end() -> None:
    middle = "\n".join(f"line {number}" for number in range(100))
    failed = 'Traceback (most recent call last):\n  File "a.py", line 1, in f\nValueError: no'

    shown = excerpt(f"start\n{failed}\n{middle}\n", tail=10)

    assert shown.splitlines() == [
        "the first error, line 2 of 104:",
        '  File "a.py", line 1, in f',
        "ValueError: no",
        "line 0",
        "line 1",
        "line 2",
        "line 3",
        "line 4",
        "line 5",
        "the last 5 lines:",
        *(f"line {number}" for number in range(95, 100)),
    ]


def test_a_short_log_stays_as_it_is() -> None:
    assert excerpt("a\nTraceback (most recent call last):\nValueError: no\n", tail=10) == (
        "a\nTraceback (most recent call last):\nValueError: no\n"
    )


def test_a_hostile_log_is_read_in_time() -> None:
    log = "Traceback (most recent call last):\n" * 3000 + "[" * 10_000 + "\n" + "(" * 10_000

    first_error(log)

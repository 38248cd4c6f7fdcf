"""Which mutants `scripts/mutate` makes, which it chooses, and which tests it holds them against."""

from __future__ import annotations

import ast

from tests.support.cases import cases, read_tables
from tests.support.places import SCRIPTS
from tests.support.workers import load

TABLES = read_tables(__file__)

mutations = load(SCRIPTS / "_mutations.py")
covering = load(SCRIPTS / "_covering.py")

FUNCTION, OTHERS = TABLES["function"], TABLES["others"]


def changes(text: str) -> list[list[str | int]]:
    found = mutations.sites("packager/core/a.py", text)
    return [[site.operator, site.line, site.before, site.after] for site in found]


def test_each_change_of_a_function_is_made_once() -> None:
    assert changes(FUNCTION) == TABLES["changes"]


def test_what_an_import_runs_is_told_from_what_a_call_runs() -> None:
    found = mutations.sites("packager/core/a.py", OTHERS)

    told = [[one.operator, one.before, one.deferred, list(one.names)] for one in found]
    assert told == TABLES["of_an_import"]


def test_a_mutant_differs_in_one_place_and_lines_stay() -> None:
    text = "def f(x):\n    # why\n    return x == 1 and x\n"

    made = [ast.unparse(mutations.mutated(text, number)) for number in range(4)]

    assert made == TABLES["a_mutant_differs_in_one_place_and_lines_stay"]
    assert mutations.mutated(text, 0).body[0].body[0].lineno == 3


def test_a_sample_stays_where_a_function_moves_and_changes_where_it_changes() -> None:
    def ids(text: str) -> list[str]:
        return [site.id for site in mutations.sites("packager/core/a.py", text)]

    def chosen(text: str) -> list[str]:
        return [
            site.id
            for site in mutations.sample(mutations.sites("packager/core/a.py", text), 5, "1")
        ]

    assert ids("LIMIT = 4\n" + FUNCTION)[1:] == ids(FUNCTION)
    assert chosen(FUNCTION) == chosen("\n\n" + FUNCTION)
    assert len(set(ids(FUNCTION) + ids(FUNCTION.replace("large", "big")))) == 2 * 17
    assert len(set(ids("def f():\n    return 1\n" * 2))) == 4


def test_tests_of_the_room_come_first_then_the_fast_and_one_case_of_each() -> None:
    seconds = TABLES["seconds"]

    assert covering.in_order(seconds, seconds, "packager/core", 4, 9.0) == TABLES["in_order"]
    found = covering.in_order(seconds, seconds, "packager/core", 9, 0.5)
    assert found == TABLES["in_half_a_second"]


@cases("lines_of_a_bug_are_those_of_its_text")
def test_lines_of_a_bug_are_those_of_its_text(part: str, lines: list[int]) -> None:
    assert list(covering.lines_of(part, "a = 1\nb = 2\n\nc = 3\n")) == lines

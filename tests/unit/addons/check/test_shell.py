"""Words of a shell's text, with their places."""

from __future__ import annotations

import shlex

import pytest

from packager.addons.check.manifests import expand_kubernetes
from packager.addons.check.shell import read_commands
from packager.addons.check.text_places import at
from packager.addons.check.values import Word
from packager.core.positions import Place
from tests.support.cases import cases_of, read_tables

cases = cases_of(__file__)
TABLES = read_tables(__file__)


def texts(text: str) -> list[list[str]]:
    return [[word.text for word in command.words] for command in read_commands(text, at("a.sh"))]


@cases("a_line_is_split_as_shlex_splits_it")
def test_a_line_is_split_as_shlex_splits_it(line: str) -> None:
    assert texts(line) == [shlex.split(line, comments=True)] or "b#c" in line
    assert "b#c" not in line or texts(line) == [["a", "b#c", "#d"]]


def test_words_have_the_lines_and_columns_of_the_file() -> None:
    text = "# comment\nvllm serve m \\\n  --max-num-seqs 64 \\\n  --name 'a\nb' --last 1\n"

    [command] = read_commands(text, at("a.sh"))

    places = {word.text: (word.place.line, word.place.column) for word in command.words}
    assert places["vllm"] == (2, 1)
    assert places["--max-num-seqs"] == (3, 3)
    assert places["64"] == (3, 18)
    assert places["a\nb"] == (4, 10)
    assert places["--last"] == (5, 4)


@cases("commands_end_where_the_shell_ends_them")
def test_commands_end_where_the_shell_ends_them(text: str, expected: list[list[str]]) -> None:
    assert texts(text) == expected


@cases("commands_with_the_values_of_every_branch")
def test_a_command_is_read_with_the_values_of_every_branch(
    text: str, expected: list[list[str]]
) -> None:
    assert [words for words in texts(text) if words[0] == "vllm"] == expected


def test_branches_do_not_multiply_without_an_end() -> None:
    names = [f"V{number}" for number in range(40)]
    branches = "".join(f"if a; then {name}=1; else {name}=2; fi\n" for name in names)

    read = texts(f"{branches}run {' '.join(f'${name}' for name in names)}")

    assert len([words for words in read if words[0] == "run"]) == 17


def test_variables_of_the_text_are_replaced_and_others_are_unknown() -> None:
    text = 'M=org/model\nOPTS="--a 1 --b"\nrun $M "$M-x" $OPTS ${N} $(date) "${O:-2}" \'$M\''

    command = read_commands(text, at("a.sh"))[-1]

    assert [[word.text, word.known] for word in command.words] == TABLES["words_of_docker_run"]


def test_variables_in_front_of_a_command_and_exported_ones_are_its_environment() -> None:
    text = "export A=1 B='x y'\nC=3 D=$X vllm serve m"

    [command] = read_commands(text, at("a.sh"))

    assert {setting.name: setting.value for setting in command.exported} == {"A": "1", "B": "x y"}
    assert [(one.name, one.value) for one in command.variables] == [("C", "3"), ("D", None)]


def test_a_variable_that_grows_from_itself_ends() -> None:
    doubled = "A=xxxxxxxxxxxxxxxx\n" + "A=$A$A\n" * 20 + "run $A"

    assert not read_commands(doubled, at("a.sh"))[-1].words[1].known


@pytest.mark.parametrize("text", ["a 'b", 'a "b', "a $(b", "a ${b", "a `b", "a \\", "a <<", "a >"])
def test_a_text_that_ends_in_the_middle_is_read_to_its_end(text: str) -> None:
    assert texts(text)[0][0] == "a"


def test_the_kubelet_replaces_its_own_variables_only() -> None:
    place = Place("a.yaml")
    words = [Word(text, place) for text in ("$(A)", "x=$(B)", "$(UNKNOWN)", "$A")]

    expanded = expand_kubernetes(words, {"A": "1", "B": None})

    assert [[word.text, word.known] for word in expanded] == TABLES["expanded"]

"""`packager --help` is grouped by what people do, and fits the terminal that is there."""

from __future__ import annotations

import inspect
import itertools
import re
import shlex
from collections.abc import Iterator

import click
import pytest

from packager.cli.app import FIRST, Commands, app, run
from packager.cli.option_groups import FIRST as OPTIONS_FIRST
from packager.cli.option_groups import GROUPS
from tests.support.cases import read_tables
from tests.support.known import known

COMMANDS = Commands().table


MOST_LINES = 60  # of a screen that people still read


def help_lines(
    capsys: pytest.CaptureFixture[str], *arguments: str, option: str = "--help"
) -> list[str]:
    assert run([*arguments, option]) == 0
    return capsys.readouterr().out.splitlines()


def test_what_to_do_comes_before_what_to_set(capsys: pytest.CaptureFixture[str]) -> None:
    headings = [line for line in help_lines(capsys, option="--help-all") if line.endswith(":")]

    assert headings == read_tables(__file__)["headings"]


def test_a_command_stands_under_one_heading() -> None:
    assert len(COMMANDS) == sum(map(len, Commands().all_sections().values()))
    assert {"plan", "build", "inspect", "cache", "doctor"} <= COMMANDS.keys()


def test_summaries_are_aligned_and_whole_at_80_columns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    width = max(map(len, COMMANDS))

    lines = help_lines(capsys, option="--help-all")

    assert max(map(len, lines)) <= 80
    for name, (_, summary) in COMMANDS.items():
        assert f"  {name:{width}}  {summary}" in lines


def test_a_group_of_two_commands_has_one_heading(capsys: pytest.CaptureFixture[str]) -> None:
    lines = help_lines(capsys, "draft")

    assert lines[lines.index("Commands:") + 1].split()[0] == "train"
    assert lines.index("Commands:") < lines.index("Options:")


def test_the_commands_of_every_day_come_first(capsys: pytest.CaptureFixture[str]) -> None:
    lines = help_lines(capsys)

    listed = [line.split()[0] for line in lines[lines.index("Commands:") + 1 :] if line[:3].strip()]
    assert listed[: len(FIRST)] == list(FIRST)
    assert f"{len(COMMANDS) - len(FIRST)} more commands:" in lines


def leaves(
    command: click.Command, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Walk the commands that do something."""
    if not isinstance(command, click.Group):
        yield path, command
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        below = known(command.get_command(context, name))
        if not below.hidden:
            yield from leaves(below, (*path, name))


VARIABLE = re.compile(r"[A-Z][A-Z0-9_]*=.*")  # set for one command


def examples_of(command: click.Command) -> list[list[str]]:
    """Return the words of each example, without comments and pipes."""
    blocks = re.findall(r"\x08\n((?:.+\n?)+)", inspect.cleandoc(command.help or ""))
    lines = re.sub(r"\\\n *", " ", "".join(blocks)).splitlines()
    split = [shlex.split(re.split(r" [|>&]|\)$| {3}", line)[0], comments=True) for line in lines]
    found = [list(itertools.dropwhile(VARIABLE.fullmatch, words)) for words in split]
    return [words for words in found if "packager" in words[:1] or words[1:2] == ["<(packager"]]


LEAVES = dict(leaves(app))
EVERY_FLAG = {
    flag for command in LEAVES.values() for one in command.params for flag in one.opts
} - {"--help"}


@pytest.mark.parametrize("path", LEAVES, ids=" ".join)
def test_help_fits_a_screen_and_all_of_it_is_one_option_away(
    path: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    flags = [
        max(one.opts, key=len)
        for one in LEAVES[path].params
        if isinstance(one, click.Option) and not one.hidden
    ]

    short = help_lines(capsys, *path)
    whole = short
    if any("--help-all" in line for line in short):
        whole = help_lines(capsys, *path, option="--help-all")

    assert len(short) <= MOST_LINES
    words = {word.strip(",") for line in whole for word in line.split()}
    assert [flag for flag in flags if flag not in words] == []
    assert "2147483647" not in "".join(whole)


def test_the_tables_of_options_name_options_that_there_are() -> None:
    named = [flag for flags in GROUPS.values() for flag in flags]

    assert [flag for flag in (*named, *OPTIONS_FIRST) if flag not in EVERY_FLAG] == []
    assert sorted(set(named)) == sorted(named)


@pytest.mark.parametrize("path", LEAVES, ids=" ".join)
def test_help_of_each_command_has_an_example_that_it_understands(path: tuple[str, ...]) -> None:
    command = LEAVES[path]
    context = click.Context(command, info_name=path[-1])
    own = [
        words[words[0] == "source" :][1 + len(path) :]
        for words in examples_of(command)
        if [*words[words[0] == "source" :]][1 : 1 + len(path)] == [*path]
    ]

    assert own, f"`packager {' '.join(path)} --help` shows no example"
    optional = {  # their values stand after `=` only
        one.opts[0]: f"{one.opts[0]}={one.metavar[2:-1]}"
        for one in command.params
        if (one.metavar or "").startswith("[=")
    }
    for line in own:
        words = [optional.get(word, word) for word in line]
        given, rest, _ = command.make_parser(context).parse_args(words)
        assert rest == []
        for param in command.params:
            assert param.name in given or not param.required, words
            if param.name in given and isinstance(param.type, click.Choice | click.IntRange):
                values = given[param.name]
                for value in values if isinstance(values, list) else [values]:
                    param.type.convert(value, param, context)

"""Blocks of README and the pages: each is run, or says why not; and what counts as the same."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from packager.cli.app import app
from tests.support.cases import cases_of
from tests.support.documents import KINDS, OTHERS, RUN, agrees, blocks, elided, is_open, pages
from tests.support.places import ROOT
from tests.support.reference_pages import REFERENCE, read_page

cases = cases_of(__file__)

MARK = re.compile(r"(?:live|long) [a-z, ]+|not run: \w.+|varies [a-z, ]+")
NEEDS = {"docker", "quantizing", "training"}
BLOCKS = [block for page in pages() for block in blocks(page)]


def test_every_block_says_what_it_is() -> None:
    odd = [block.where for block in BLOCKS if block.language not in (*RUN, *OTHERS) or block.odd]

    assert len(BLOCKS) > 80
    assert odd == []


def test_every_mark_is_one_that_is_known() -> None:
    marks = [(block, mark) for block in BLOCKS for mark in block.marks]

    assert [(block.where, mark) for block, mark in marks if not MARK.fullmatch(mark)] == []
    assert {kind for block in BLOCKS for kind in block.varies} <= set(KINDS)
    assert {need for block in BLOCKS for need in block.needs} <= NEEDS


def test_most_blocks_of_commands_are_run() -> None:
    stages = [block.stage for block in BLOCKS if block.stage not in ("", "files")]

    assert stages.count("here") > 20
    assert stages.count("nobody") < stages.count("here")


def test_every_block_of_commands_has_some() -> None:
    assert [
        block.where
        for block in BLOCKS
        if block.language in ("console", "sh") and not list(block.commands())
    ] == []


def test_no_command_that_is_run_hides_all_of_its_output() -> None:
    hidden = [
        f"{block.where}: {command.text}"
        for block in BLOCKS
        if block.stage == "here"
        for command in block.commands()
        if command.shown == ("…",)
    ]

    assert hidden == []


@pytest.mark.parametrize(
    "path",
    [*pages(), *REFERENCE, ROOT / "SECURITY.md"],
    ids=lambda path: path.relative_to(ROOT).as_posix(),
)
def test_commands_and_options_that_a_page_names_are_there(path: Path) -> None:
    """Those of blocks that nobody can run here, those between the lines, and those of help."""
    text = read_page(path)
    lines = [command.text for block in blocks(path, text) for command in block.commands()]
    lines += re.findall(r"`(packager [^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))

    help_texts = [block.lines for block in blocks(path, text) if block.language == "text"]
    lines += [
        line.strip() for shown in help_texts for line in shown if "  packager " in f"  {line}"
    ]

    assert [f"{line}: {told}" for line in lines if (told := misspelt(line))] == []


def misspelt(line: str) -> str:
    """Return which command or option of a line is unknown; `` for what is no command of ours."""
    words = words_of(line)
    if words[:1] != ["packager"]:
        return ""
    command: click.Command = app
    rest = words[1:]
    context = click.Context(app)
    while isinstance(command, click.Group) and rest and re.fullmatch(r"[a-z-]+", rest[0]):
        if rest[0].startswith("-"):
            break
        below = command.get_command(context, rest[0])
        if below is None:
            return "" if getattr(command, "default", None) else f"no command {rest[0]!r}"
        command, rest = below, rest[1:]
    if "--" in rest:  # what a job runs is a command, too
        later = rest[rest.index("--") + 1 :]
        rest = rest[: rest.index("--")]
        if told := misspelt(shlex.join(["packager", *later])):
            return told
    known = {name for one in command.params for name in (*one.opts, *one.secondary_opts)}
    known |= {"-h", "--help", "--version"}
    options = [word for word in rest if re.fullmatch(r"--?[a-z][^\s=]*(=.*)?", word, re.DOTALL)]
    asked = [word.partition("=")[0] for word in options]  # options in quotes are a value
    return ", ".join(word for word in asked if word not in known)


def words_of(line: str) -> list[str]:
    """Split the first command of a line: what stands before a pipe or a redirection."""
    plain = line.replace("\\\n", " ").replace("\\|", "|")
    try:
        words = shlex.split(plain, comments=True)
    except ValueError:  # a pattern or an ellipsis within prose
        words = plain.split()
    while words and re.match(r"\w+=", words[0]):
        words = words[1:]
    ends = [index for index, word in enumerate(words) if word in ("|", ">", ">>", "&&", "||")]
    return words[: ends[0]] if ends else words


@cases("unknown_commands_and_options_are_found")
def test_unknown_commands_and_options_are_found(line: str, told: str) -> None:
    assert misspelt(line) == told


@cases("which_commands_go_on")
def test_which_commands_go_on(text: str, goes_on: bool) -> None:
    assert is_open(text) is goes_on


@cases("what_agrees")
def test_what_agrees(
    shown: list[str], printed: list[str], kinds: tuple[str, ...], same: bool
) -> None:
    assert agrees(shown, printed, kinds) is same


def test_an_update_writes_what_cannot_be_left_out() -> None:
    assert elided(["a …"], ["b", "a x"]) == ["b", "a x"]
    assert elided(["a"], ["b"]) == ["b"]


def test_a_mark_belongs_to_the_block_right_below_it() -> None:
    text = "<!-- doc: not run: none -->\n\ntext\n\n```sh\nls\n```\n"

    assert blocks(ROOT / "docs/page.md", text)[0].stage == "here"

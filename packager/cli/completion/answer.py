"""The answer to a shell that completes a command line."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from click import Command
from click.shell_completion import CompletionItem, ShellComplete

from packager.cli.completion import VARIABLE
from packager.cli.completion.shells import SHELLS, answer_text, line_of
from packager.core.share import share_dir

_LONGEST = 70  # characters of help beside a value


def answer(app: Command, arguments: Sequence[str]) -> None:
    """Print the candidates at the cursor; on any failure print nothing."""
    with suppress(Exception):
        shell, _, wish = os.environ[VARIABLE].partition("_")
        text = script_of(shell) if wish == "source" else answer_to(app, shell, arguments)
        sys.stdout.write(text)
        sys.stdout.flush()


def script_of(shell: str) -> str:
    """Return the completion script of a shell, as click does for `bash_source`."""
    if shell not in SHELLS:
        return ""
    place = share_dir("templates") / "completion" / f"packager.{shell}"
    return place.read_text(encoding="utf-8")


def answer_to(app: Command, shell: str, arguments: Sequence[str]) -> str:
    """Return the output that a shell's script reads."""
    if shell not in SHELLS or not arguments:
        return ""
    line = line_of(shell, arguments)
    option, equals, value = line.text.partition("=")
    is_joined = bool(equals) and option.startswith("--")
    words, text = [*line.words[1:]], line.text
    if is_joined:
        words, text = [*words, option], value
    found = ShellComplete(app, {}, "packager", VARIABLE).get_completions(words, text)
    unique = {
        one.value: CompletionItem(
            f"{option}={one.value}" if is_joined else one.value, one.type, _first(one.help)
        )
        for one in found
        if one.value.startswith(text) and _is_plain(one)
    }
    return answer_text(shell, arguments, line, unique.values())


def _is_plain(one: CompletionItem[Any]) -> bool:
    """Whether text is printable: file names and plug-ins are untrusted."""
    return bool(one.value) and one.value.isprintable() and (one.help or "").isprintable()


def _first(text: str | None) -> str:
    """Return the first sentence of a help text."""
    sentence = (text or "").partition(". ")[0].partition("; ")[0]
    return (
        sentence
        if len(sentence) <= _LONGEST
        else sentence[: _LONGEST - 1].rpartition(" ")[0] + " …"
    )

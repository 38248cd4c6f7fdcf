"""The answer to a shell that completes a command line."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from packager.cli.completion import VARIABLE
from packager.cli.completion.candidates import CompletionCandidate, complete
from packager.cli.completion.shells import SHELLS, answer_text, asked
from packager.cli.completion.values import Values
from packager.core.share import share_dir

INDEX = Path(__file__).parent / "index.json"


def answer(arguments: Sequence[str]) -> None:
    """Print the candidates at the cursor; on any failure print nothing."""
    with suppress(Exception):
        shell, _, wish = os.environ[VARIABLE].partition("_")
        text = script_of(shell) if wish == "source" else answer_to(shell, arguments)
        sys.stdout.write(text)
        sys.stdout.flush()


def script_of(shell: str) -> str:
    """Return the completion script of a shell, as click does for `bash_source`."""
    if shell not in SHELLS:
        return ""
    place = share_dir("templates") / "completion" / f"packager.{shell}"
    return place.read_text(encoding="utf-8")


def answer_to(shell: str, arguments: Sequence[str]) -> str:
    """Return the output that a shell's script reads."""
    if shell not in SHELLS or not arguments:
        return ""
    line = asked(shell, arguments)
    index = json.loads(INDEX.read_text(encoding="utf-8"))
    found = complete(index, line.words[1:], line.text, Values(index, os.environ))
    unique = {one.text: one for one in found if one.text and _is_plain(one)}
    return answer_text(shell, arguments, line, unique.values())


def _is_plain(one: CompletionCandidate) -> bool:
    """Whether text is printable: file names and plug-ins are untrusted."""
    return one.text.isprintable() and one.help.isprintable()

"""Candidates for the next word of a command line, from the index of commands.

Pure but for the values that a kind of argument looks up, which are handed in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, TypeAlias

from packager.core.values import dataclass

Node: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class CompletionCandidate:
    """A word that can replace the one at the cursor."""

    text: str
    help: str = ""
    is_whole: bool = True  # False: more of the word follows, such as a path below a directory


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A value to complete: its kind, the typed beginning, and the command line before it."""

    kind: str
    text: str
    command: str  # such as `cache ls`
    options: Mapping[str, str]  # the last value of each option on the line


Answer: TypeAlias = Callable[[Question], Iterable[CompletionCandidate]]


@dataclass(slots=True)
class _Reading:
    """The parsed words before the cursor."""

    path: list[str] = field(default_factory=list)
    options: dict[str, str] = field(default_factory=dict)
    positions: int = 0  # arguments so far
    awaits: str = ""  # the option whose value comes next
    has_ended: bool = False  # `--` was read: no option follows
    is_known: bool = True  # False: a command that does not exist


def complete(
    index: Node, words: Sequence[str], text: str, answer: Answer
) -> list[CompletionCandidate]:
    """Return candidates for `text`, after `words` (without the program's name)."""
    commands: Mapping[str, Node] = index["commands"]
    said = _read(commands, words)
    if not said.is_known:
        return []
    node = commands[" ".join(said.path)]
    found = _next(node, said, text, answer)
    return [one for one in found if one.text.startswith(text)]


def _next(node: Node, said: _Reading, text: str, answer: Answer) -> Iterable[CompletionCandidate]:
    if said.awaits:
        return _values(node["options"][said.awaits][0], text, said, answer)
    if text.startswith("-") and not said.has_ended:
        option, sign, value = text.partition("=")
        if sign and _takes_value(node, option):
            values = _values(node["options"][option][0], value, said, answer)
            return [
                CompletionCandidate(f"{option}={one.text}", one.help, one.is_whole)
                for one in values
            ]
        return _options(node, said, text)
    if "commands" in node:
        return [CompletionCandidate(name, told) for name, told in node["commands"].items()]
    if (kind := _argument(node, said.positions)) is not None:
        return _values(kind, text, said, answer)
    return [] if text or said.has_ended else _options(node, said, text)


def _read(commands: Mapping[str, Node], words: Sequence[str]) -> _Reading:
    said = _Reading()
    for word in words:
        node = commands[" ".join(said.path)]
        if said.awaits:
            said.options[said.awaits], said.awaits = word, ""
        elif word == "--" and not said.has_ended:
            said.has_ended = True
        elif word.startswith("-") and len(word) > 1 and not said.has_ended:
            _read_option(node, word, said)
        elif "commands" in node:
            if word not in node["commands"]:
                said.is_known = False
                return said
            said.path.append(word)
            said.options.clear()
        else:
            said.positions += 1
    return said


def _read_option(node: Node, word: str, said: _Reading) -> None:
    option, sign, value = word.partition("=")
    if sign or not _takes_value(node, option) or node["options"][option][1] == "?":
        said.options[option] = value
    else:
        said.awaits = option


def _takes_value(node: Node, option: str) -> bool:
    return option in node["options"] and node["options"][option][1] != "0"


def _options(node: Node, said: _Reading, text: str) -> Iterator[CompletionCandidate]:
    """Yield options that are still allowed; short ones only after a single `-`."""
    for name, (_, count, told) in node["options"].items():
        if name in said.options and count != "*":
            continue
        if name.startswith("--") or (text and not text.startswith("--")):
            yield CompletionCandidate(name, told)


def _argument(node: Node, position: int) -> Any:
    """Return the kind of the argument at a position, or None; the last may be repeated."""
    kinds: Sequence[tuple[Any, str]] = node["arguments"]
    for place, (kind, count) in enumerate(kinds):
        if place == position or count == "*":
            return kind
    return None


def _values(kind: Any, text: str, said: _Reading, answer: Answer) -> Iterable[CompletionCandidate]:
    if isinstance(kind, list):
        return [CompletionCandidate(choice) for choice in kind]
    asked = Question(kind=kind, text=text, command=" ".join(said.path), options=dict(said.options))
    return answer(asked)

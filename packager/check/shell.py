"""A shell's command lines as words with places: quotes, continuations, comments, variables.

No command is run and nothing is expanded but variables that the text itself sets to plain
words.  What only a shell could know makes a word unknown.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from packager.check.values import Place, Setting, Word

ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL | re.ASCII)
VARIABLE = re.compile(r"\$(?:\{([A-Za-z_][A-Za-z0-9_]*)\}|([A-Za-z_][A-Za-z0-9_]*))", re.ASCII)
KUBERNETES = re.compile(r"\$\(([A-Za-z_][A-Za-z0-9_.-]*)\)", re.ASCII)
ENDS = ";&|()\n"
HEREDOC = re.compile(r"<<-?\s*(['\"]?)([A-Za-z_]\w*)\1")

MOST_EXPANDED = 1024 * 1024  # characters of variables' values in one text
MOST_EXPORTED = 1000

Locate = Callable[[int, int], Place]  # of a line and a column, from 0, of the text


@dataclass(slots=True)
class Command:
    """One simple command: its words, and the variables that are set for it."""

    words: list[Word] = field(default_factory=list)
    variables: list[Setting] = field(default_factory=list)  # before it: NAME=VALUE command
    exported: list[Setting] = field(default_factory=list)  # by earlier lines


def at(file: str, line: int = 1, column: int = 1, further: int | None = None) -> Locate:
    """Return the places of a text that begins at a column; further lines begin at `further`."""
    first_of_next = column if further is None else further

    def locate(row: int, character: int) -> Place:
        return Place(file, line + row, (first_of_next if row else column) + character)

    return locate


def inside(word: Word) -> Locate:
    """Return the places of a word's text: all at the word where its lines are not the file's."""
    if word.inner is None:
        return lambda _row, _character: word.place
    return at(word.inner.file, word.inner.line, word.inner.column)


def read_commands(text: str, locate: Locate) -> list[Command]:
    """Split a text into simple commands, each with the variables that it starts with."""
    known: dict[str, str] = {}
    exported: dict[str, Setting] = {}
    commands: list[Command] = []
    for words in _split(text, locate, known):
        command = Command(exported=list(exported.values()))
        rest = list(words)
        while rest and (found := ASSIGNMENT.fullmatch(rest[0].text)):
            word = rest.pop(0)
            command.variables.append(
                Setting(found[1], found[2] if word.known else None, word.place)
            )
        if rest and rest[0].text in {"export", "declare", "typeset", "readonly", "set"}:
            _export(rest, known, exported)
        elif not rest:
            for setting in command.variables:
                _remember(setting, known)
                if setting.name in exported:
                    exported[setting.name] = setting
        else:
            command.words = rest
            commands.append(command)
    return commands


def expand_kubernetes(words: Iterable[Word], values: Mapping[str, str | None]) -> tuple[Word, ...]:
    """Replace `$(NAME)` by the container's variables, as the kubelet does."""

    def expanded(word: Word) -> Word:
        known = True

        def replaced(match: re.Match[str]) -> str:
            nonlocal known
            value = values.get(match[1])
            known = known and value is not None
            return match[0] if value is None else value

        text = KUBERNETES.sub(replaced, word.text)
        return Word(text, word.place, word.known and known, word.inner)

    return tuple(expanded(word) for word in words)


def _export(words: list[Word], known: dict[str, str], exported: dict[str, Setting]) -> None:
    for word in words[1:]:
        found = ASSIGNMENT.fullmatch(word.text)
        if found:
            setting = Setting(found[1], found[2] if word.known else None, word.place)
            _remember(setting, known)
            is_exported = words[0].text == "export" or words[1].text == "-x"
            if is_exported and len(exported) < MOST_EXPORTED:
                exported[setting.name] = setting
        elif words[0].text == "export" and word.text in known:
            exported[word.text] = Setting(word.text, known[word.text], word.place)


def _remember(setting: Setting, known: dict[str, str]) -> None:
    known.pop(setting.name, None)
    if setting.value is not None:
        known[setting.name] = setting.value


def _split(text: str, locate: Locate, known: Mapping[str, str]) -> Iterable[list[Word]]:
    """Yield the words of one command after another; `known` may grow in between."""
    scanner = _Scanner(text, locate, known)
    while not scanner.is_done():
        words = scanner.command()
        if words:
            yield words


class _Scanner:
    """Reads a shell's text from left to right."""

    def __init__(self, text: str, locate: Locate, known: Mapping[str, str]) -> None:
        self.text, self.locate, self.known = text, locate, known
        self.position, self.row, self.row_start = 0, 0, 0
        self.heredocs: list[str] = []
        self.expanded = 0

    def is_done(self) -> bool:
        return self.position >= len(self.text)

    def command(self) -> list[Word]:
        """Return the words up to the command's end; none of an empty one."""
        words: list[Word] = []
        while not self.is_done():
            char = self.text[self.position]
            if char in ENDS:
                self._end(char)
                return words
            if char in " \t\r":
                self.position += 1
            elif self.text.startswith("\\\n", self.position):
                self._newline(2)
            elif char == "#":
                end = self.text.find("\n", self.position)
                self.position = len(self.text) if end < 0 else end
            elif char in "<>" or re.match(r"\d?[<>]", self.text[self.position : self.position + 2]):
                self._redirection()
            else:
                words += self._word()
        return words

    def _end(self, char: str) -> None:
        if char != "\n":
            self.position += 1
            return
        self._newline(1)
        for name in self.heredocs:  # their lines are input of a command, not commands
            while not self.is_done():
                end = self.text.find("\n", self.position)
                line = self.text[self.position : None if end < 0 else end]
                self.position = len(self.text) if end < 0 else end
                if end >= 0:
                    self._newline(1)
                if line.strip() == name:
                    break
        self.heredocs = []

    def _redirection(self) -> None:
        found = HEREDOC.match(self.text, self.position)
        if found:
            self.heredocs.append(found[2])
            self.position = found.end()
            return
        while not self.is_done() and self.text[self.position] in "0123456789<>&|":
            self.position += 1
        while not self.is_done() and self.text[self.position] in " \t":
            self.position += 1
        if not self.is_done() and self.text[self.position] not in ENDS:
            self._word()

    def _newline(self, width: int) -> None:
        self.position += width
        self.row += 1
        self.row_start = self.position

    def _word(self) -> list[Word]:
        """Return the word here; none where an unquoted variable stands for nothing."""
        place = self.locate(self.row, self.position - self.row_start)
        parts: list[str] = []
        known, quoted, bare_unknown = True, False, False
        while not self.is_done():
            char = self.text[self.position]
            if char in " \t\r<>" or char in ENDS:
                break
            if char == "\\":
                if self.text.startswith("\\\n", self.position):
                    self._newline(2)
                    continue
                parts.append(self.text[self.position + 1 : self.position + 2])
                self.position += 2
                quoted = True
            elif char == "'":
                parts.append(self._single())
                quoted = True
            elif char == '"':
                text, is_known = self._double()
                parts.append(text)
                known, quoted = known and is_known, True
            elif char in "$`":
                text, is_known = self._expansion()
                parts.append(text)
                bare_unknown = bare_unknown or not is_known
                known = known and is_known
            else:
                parts.append(char)
                self.position += 1
        text = "".join(parts)
        if not quoted and not text and not bare_unknown:
            return []
        if not quoted and known and " " in text:  # a variable of several words
            return [Word(one, place) for one in text.split()]
        return [Word(text, place, known)]

    def _single(self) -> str:
        end = self.text.find("'", self.position + 1)
        end = len(self.text) if end < 0 else end
        text = self.text[self.position + 1 : end]
        self._skip(text)
        self.position = min(end + 1, len(self.text))
        return text

    def _skip(self, text: str) -> None:
        """Count the lines of a quoted text that begins behind the quote."""
        if "\n" in text:
            self.row += text.count("\n")
            self.row_start = self.position + 1 + text.rfind("\n") + 1

    def _double(self) -> tuple[str, bool]:
        self.position += 1
        parts: list[str] = []
        known = True
        while not self.is_done() and self.text[self.position] != '"':
            char = self.text[self.position]
            if self.text.startswith("\\\n", self.position):
                self._newline(2)
            elif char == "\\" and self.text[self.position + 1 : self.position + 2] in {*'"\\$`'}:
                parts.append(self.text[self.position + 1])
                self.position += 2
            elif char in "$`":
                text, is_known = self._expansion()
                parts.append(text)
                known = known and is_known
            elif char == "\n":
                parts.append(char)
                self._newline(1)
            else:
                parts.append(char)
                self.position += 1
        self.position += 1
        return "".join(parts), known

    def _expansion(self) -> tuple[str, bool]:
        """Return what a variable stands for, or its text and False."""
        found = VARIABLE.match(self.text, self.position)
        if found:
            self.position = found.end()
            value = self.known.get(found[1] or found[2])
            self.expanded += len(value or "")
            if self.expanded > MOST_EXPANDED:
                value = None
            return (found[0], False) if value is None else (value, True)
        for opening, closing in (("$(", ")"), ("${", "}"), ("`", "`")):
            if self.text.startswith(opening, self.position):
                return self._substitution(opening, closing), False
        special = re.match(r"\$[@*#?$!0-9-]", self.text[self.position : self.position + 2])
        self.position += 2 if special else 1
        return (special[0], False) if special else ("$", True)

    def _substitution(self, opening: str, closing: str) -> str:
        begun = self.position
        self.position += len(opening)
        depth = 1
        while not self.is_done() and depth:
            char = self.text[self.position]
            if char == "\n":
                self._newline(1)
                continue
            if char == closing:
                depth -= 1
            elif opening != "`" and char == opening[-1]:
                depth += 1
            self.position += 1
        return self.text[begun : self.position]

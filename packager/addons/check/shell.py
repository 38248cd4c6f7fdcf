"""A shell's command lines as words with places: quotes, continuations, comments, variables.

No command is run, and only variables and arrays that the text itself sets to plain words are
expanded.  A word that only a shell can expand is unknown.  PowerShell and Windows' `cmd` differ in
the character that continues a line, and in how variables are set and named.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from packager.addons.check.dialects import CMD, POSIX, ConfigDialect, dialect_of
from packager.addons.check.shell_functions import calls_of
from packager.addons.check.shell_variables import ASSIGNMENT, BEHIND, ShellVariables
from packager.addons.check.text_places import Locate, Parts
from packager.addons.check.values import Edit, Remark, Setting, Word
from packager.core.documents import shorten
from packager.core.findings import Finding
from packager.core.positions import Place, spans_of

ARRAY = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(\+?)=\(", re.ASCII)
WORDS = re.compile(  # all words of an array, or those that a script is started with
    r'(?P<quote>"?)\$(?:\{(?P<array>[A-Za-z_][A-Za-z0-9_]*)\[[@*]\]\}|\{?[@*]\}?)(?P=quote)'
    r"(?=[\s;&|)]|$)",
    re.ASCII,
)
ENDS = ";&|()\n"
SETTERS = frozenset({"export", "declare", "typeset", "readonly", "set", "local"})
PLAIN = re.compile(r"[^\s<>;&|()'\"\\^$`%]+")  # what no shell reads as anything else
PLAIN_QUOTED = re.compile(r"[^\"\\^$`%\n]+")
# `${NAME:-VALUE}`, where nothing else sets NAME.
DEFAULT = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*):?[-=]([^{}$`\"'\\\n]*)\}", re.ASCII)
HEREDOC = re.compile(r"<<-?\s*(['\"]?)([A-Za-z_]\w*)\1")

MOST_EXPANDED = 1024 * 1024  # characters of variables' values in one text
MOST_VARIANTS = 16  # of one command
MOST_ELEMENTS = 4000  # words of all arrays, each time that they are named


@dataclass(slots=True)
class ShellCommand:
    """One simple command: its words, and the variables that are set for it."""

    words: list[Word] = field(default_factory=list)
    variables: list[Setting] = field(default_factory=list)  # before it: NAME=VALUE command
    exported: list[Setting] = field(default_factory=list)  # by earlier lines
    inputs: list[Word] = field(default_factory=list)  # the texts of its here-documents
    remarks: list[Remark] = field(default_factory=list)  # of its line ends
    end: Place = field(default_factory=lambda: Place(""))  # behind its last character
    ends_line: bool = False  # by the line's end, not by an operator
    escape: str = POSIX.escape


def read_commands(
    text: str,
    locate: Locate,
    dialect: ConfigDialect | None = None,
    parameters: Sequence[Word] | None = None,
    variables: ShellVariables | None = None,
) -> list[ShellCommand]:
    """Split a text into simple commands, each with the variables that it starts with.

    `parameters` are the words after a script, its `"$@"`; None if unknown.  A command stands there
    once for every value that branches of the text give to one of its variables.
    """
    known = variables or ShellVariables()
    commands: list[ShellCommand] = []
    scanner = _Scanner(text, locate, dialect or dialect_of(text), known, parameters)
    while not scanner.is_done():
        known.is_behind = scanner.ended in ("&", "|")
        for chosen, command in scanner.variants():
            known.chosen = chosen
            if not chosen:
                known.enter(command.words)
            command.exported = list(known.exported.values())
            rest = command.words
            if len(rest) > 1 and rest[0].text in BEHIND and ASSIGNMENT.fullmatch(rest[1].text):
                del rest[0]
            while rest and (setting := known.assigned(rest[0])) is not None:
                rest.pop(0)
                command.variables.append(setting)
            if rest and rest[0].text in SETTERS:
                known.export(rest)
                _set_parameters(rest, scanner)
            elif rest:
                commands.append(command)
            else:
                for setting in command.variables:
                    known.set(setting)
        known.chosen = {}
    for body, within, words in calls_of(text, commands, locate):
        commands += read_commands(body, within, parameters=words)
    return commands


def _set_parameters(words: list[Word], scanner: _Scanner) -> None:
    """Remember the words of `set -- WORD…` as those that `"$@"` names."""
    if words[0].text == "set" and len(words) > 1 and words[1].text == "--":
        scanner.parameters = words[2:]


class _Scanner:
    """Reads a shell's text from left to right."""

    def __init__(
        self,
        text: str,
        locate: Locate,
        dialect: ConfigDialect,
        known: ShellVariables,
        parameters: Sequence[Word] | None,
    ) -> None:
        self.text, self.locate, self.dialect = text, locate, dialect
        self.known, self.parameters = known, parameters
        self.position, self.row, self.row_start = 0, 0, 0
        self.heredocs: list[str] = []
        self.ended = ""  # by which character the last command
        self.expanded, self.elements = 0, 0  # characters of variables, words of arrays
        self.continued = f"{dialect.escape}\n"
        self.broken = re.compile(re.escape(dialect.escape) + r"[ \t]+(?=\n[ \t]*[^\s#])")

    def is_done(self) -> bool:
        return self.position >= len(self.text)

    def here(self) -> Place:
        return self.locate(self.row, self.position - self.row_start)

    def variants(self) -> list[tuple[dict[str, int], ShellCommand]]:
        """Return the next command, once for each value of a variable in it."""
        begun = (self.position, self.row, self.row_start)
        heredocs = [*self.heredocs]
        self.known.counts = {}
        found: list[tuple[dict[str, int], ShellCommand]] = [({}, self.command())]
        counts = dict(self.known.counts)
        choices = [{name: i} for name, count in counts.items() for i in range(1, count)]
        for chosen in choices[:MOST_VARIANTS]:
            self.position, self.row, self.row_start = begun
            self.heredocs = [*heredocs]
            self.known.chosen = chosen
            found.append((chosen, self.command()))
        self.known.chosen = {}
        return found

    def command(self) -> ShellCommand:
        """Return the words up to the command's end; none of an empty one."""
        command = ShellCommand(escape=self.dialect.escape)
        while not self.is_done():
            char = self.text[self.position]
            if char in ENDS:
                command.end, command.ends_line = self.here(), char == "\n"
                self._end(char, command)
                return command
            if char in " \t\r":
                self.position += 1
            elif not self._is_special(command):
                command.words += self._word(command)
        command.end, command.ends_line = self.here(), True
        return command

    def _is_special(self, command: ShellCommand) -> bool:
        """Consume what is no word: a line's end, a comment, a redirection, an assignment."""
        if self.text.startswith(self.continued, self.position):
            self._newline(2)
        elif broken := self.broken.match(self.text, self.position):
            self._break(command, broken[0])
        elif self._begins_comment(command):
            end = self.text.find("\n", self.position)
            self.position = len(self.text) if end < 0 else end
        elif re.match(r"\d?[<>]", self.text[self.position : self.position + 2]):
            self._redirection(command)
        else:
            return self._is_array(command) or self._is_set(command) or self._is_all(command)
        return True

    def _begins_comment(self, command: ShellCommand) -> bool:
        found = self.dialect.comment.match(self.text, self.position)
        return found is not None and (self.dialect is not CMD or not command.words)

    def _break(self, command: ShellCommand, text: str) -> None:
        """Remark on blanks behind the character that was to continue the line."""
        place, escape = self.here(), self.dialect.escape
        message = (
            f"a blank follows the `{escape}`: the command ends here, and the next line is lost"
        )
        hint = f"end the line with the `{escape}` itself"
        edit = Edit(place=place, old=text, new=escape)
        command.remarks.append(Remark(place, Finding("error", "line-lost", message, hint), edit))
        self.position += len(text)

    def _is_array(self, command: ShellCommand) -> bool:
        """Remember `NAME=(WORD …)`, or `NAME+=(…)`, of a POSIX shell."""
        found = ARRAY.match(self.text, self.position) if self.dialect is POSIX else None
        if found is None:
            return False
        self.position = found.end()
        words: list[Word] = []
        while not self.is_done() and self.text[self.position] != ")":
            if self.text[self.position] == "\n":
                self._newline(1)
            elif self.text[self.position] in " \t\r;&|(":
                self.position += 1
            elif not self._is_special(command):
                words += self._word(command)
        self.position += 1
        self.known.set_array(found[1], words, grows=bool(found[2]))
        return True

    def _is_all(self, command: ShellCommand) -> bool:
        """Insert the words of `"${NAME[@]}"` or `"$@"`, where they are known."""
        found = WORDS.match(self.text, self.position)
        if found is None:
            return False
        words = self.known.words(found["array"]) if found["array"] else self.parameters
        if words is None or self.elements + len(words) > MOST_ELEMENTS:
            words = [Word(found[0].strip('"'), self.here(), known=False)]
        self.elements += len(words)
        self.position = found.end()
        command.words += words
        return True

    def _is_set(self, command: ShellCommand) -> bool:
        """Read what PowerShell and cmd set as an exported variable."""
        sets = self.dialect.sets
        found = sets.match(self.text, self.position) if sets and not command.words else None
        if found is None:
            return False
        place = self.here()
        self.position = found.end()
        if self.dialect is CMD:
            end = re.compile(r'["&|\n]|$').search(self.text, self.position)
            assert end is not None
            text, known = self.text[self.position : end.start()], True
            self.position = end.end() if end[0] == '"' else end.start()
        else:
            value = (*self._word(command), Word("", place))[0]
            text, known = value.text, value.known
        command.words += [Word("export", place), Word(f"{found[1]}={text}", place, known)]
        return True

    def _end(self, char: str, command: ShellCommand) -> None:
        self.ended = char
        if char != "\n":
            self.position += 1
            return
        self._newline(1)
        for name in self.heredocs:  # their lines are input of a command, not commands
            place, begun = self.here(), self.position
            ended = begun
            while not self.is_done():
                end = self.text.find("\n", self.position)
                line = self.text[self.position : None if end < 0 else end]
                ended = self.position
                self.position = len(self.text) if end < 0 else end
                if end >= 0:
                    self._newline(1)
                if line.strip() == name:
                    break
                ended = self.position
            text = self.text[begun:ended]
            command.inputs.append(Word(text, place, spans=spans_of(text, place)))
        self.heredocs = []

    def _redirection(self, command: ShellCommand) -> None:
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
            self._word(command)

    def _newline(self, width: int) -> None:
        self.position += width
        self.row += 1
        self.row_start = self.position

    def _word(self, command: ShellCommand) -> list[Word]:
        """Return the word here; none if an unquoted variable is empty."""
        place, escape, begun = self.here(), self.dialect.escape, self.position
        parts = Parts()
        quoted, bare_unknown = False, False
        while not self.is_done():
            char = self.text[self.position]
            if char in " \t\r<>" or char in ENDS:
                break
            if char == escape:
                if self.text.startswith(self.continued, self.position):
                    self._join(command, begun)
                    continue
                self.position += 1
                parts.add(self.text[self.position : self.position + 1], self.here())
                self.position += 1
                quoted = True
            elif char in self.dialect.quotes:
                if char == "'":
                    self._single(parts)
                else:
                    self._double(parts)
                quoted = True
            elif self.dialect.variable.match(self.text, self.position) or (
                self.dialect is not CMD and char in "$`"
            ):
                bare_unknown = not self._expansion(parts) or bare_unknown
            else:
                self._add(PLAIN, parts)
        text = parts.text()
        if self.dialect is not POSIX and '\\"' in text:
            parts.known = False  # what becomes of it is the program's own matter
        if not quoted and not text and not bare_unknown:
            return []
        if not quoted and parts.known and " " in text:  # a variable of several words
            return [Word(one, place) for one in text.split()]
        return [Word(text, place, parts.known, parts.spans())]

    def _join(self, command: ShellCommand, begun: int) -> None:
        """Continue with the next line; report it if that joins two words."""
        place, escape = self.here(), self.dialect.escape
        before = self.text[begun : self.position]
        self._newline(2)
        if self.position > begun and self.text.startswith("-", self.position):
            following = re.split(r"\s", self.text[self.position : self.position + 200])[0]
            message = (
                f"{shorten(before, 60)} and {shorten(following, 60)} of the next line become one "
                f"word: no blank stands before the `{escape}`"
            )
            hint = f"write a blank before the `{escape}`"
            found = Finding("error", "words-joined", message, hint)
            edit = Edit(place=place, old=escape, new=f" {escape}")
            command.remarks.append(Remark(place, found, edit))

    def _single(self, parts: Parts) -> None:
        end = self.text.find("'", self.position + 1)
        end = len(self.text) if end < 0 else end
        self.position += 1
        for number, line in enumerate(self.text[self.position : end].split("\n")):
            if number:
                parts.add("\n", self.here())
                self._newline(1)
            parts.add(line, self.here())
            self.position += len(line)
        self.position = min(end + 1, len(self.text))

    def _double(self, parts: Parts) -> None:
        self.position += 1
        escape, escaped = self.dialect.escape, self.dialect.escaped
        while not self.is_done() and self.text[self.position] != '"':
            char, following = self.text[self.position], self.text[self.position + 1 :][:1]
            is_quote = self.dialect is CMD and char == "\\" and following == '"'
            if self.dialect is not CMD and self.text.startswith(self.continued, self.position):
                self._newline(2)
            elif is_quote or (
                char == escape
                and self.dialect is not CMD
                and following
                and (not escaped or following in escaped)
            ):
                self.position += 1
                parts.add(following, self.here())
                self.position += 1
            elif self.dialect.variable.match(self.text, self.position) or (
                self.dialect is not CMD and char in "$`"
            ):
                self._expansion(parts)
            elif char == "\n":
                parts.add(char, self.here())
                self._newline(1)
            else:
                self._add(PLAIN_QUOTED, parts)
        self.position += 1

    def _add(self, plain: re.Pattern[str], parts: Parts) -> None:
        """Add literal text, at least one character."""
        found = plain.match(self.text, self.position)
        text = found[0] if found else self.text[self.position]
        parts.add(text, self.here())
        self.position += len(text)

    def _expansion(self, parts: Parts) -> bool:
        """Add a variable's value, or its text; return whether it is known."""
        place = self.here()
        found = self.dialect.variable.match(self.text, self.position)
        if found:
            self.position = found.end()
            value = self.known.value(next(name for name in found.groups() if name))
            self.expanded += len(value or "")
            if self.expanded > MOST_EXPANDED:
                value = None
            parts.add(found[0] if value is None else value, place, is_known=value is not None)
            parts.is_moved = parts.is_moved or value is not None
            return value is not None
        if (found := DEFAULT.match(self.text, self.position)) and self.dialect is POSIX:
            self.position = found.end()
            value = self.known.value(found[1])
            parts.add(value or found[2], place)
            parts.is_moved = True
            return True
        for opening, closing in (("$(", ")"), ("${", "}"), ("`", "`")):
            if self.text.startswith(opening, self.position):
                parts.add(self._substitution(opening, closing), place, is_known=False)
                return False
        special = re.match(r"\$[@*#?$!0-9-]", self.text[self.position : self.position + 2])
        self.position += 2 if special else 1
        parts.add(special[0] if special else "$", place, is_known=not special)
        return not special

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

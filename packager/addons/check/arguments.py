"""A command line as an engine's own argument parser takes it, with the places of its options.

Python's parser takes `--name=value`, unique beginnings of names, and the last value of a repeated
option.  vLLM's also takes underscores, one-dash names, `-O3` and JSON by dotted keys.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from packager.addons.check.values import Edit, Remark, Word
from packager.core.documents import NotStrict, parse_json, shorten
from packager.core.findings import Finding
from packager.core.positions import Place
from packager.core.share import read_shipped
from packager.core.suggestions import nearest
from packager.core.versions import is_within
from packager.engines.schema import EngineSchema, Option, read_size
from packager.engines.successors import find_missing

SHORT = Path(__file__).parent / "data" / "short_options.toml"
NUMBER = re.compile(r"-(\d+|\d*\.\d+)", re.ASCII)
LEVEL = "optimization-level"
SIZE = re.compile(r"\d{1,12}(?:\.\d{1,6})?[kmgt]|\d{1,12}[KMGT]", re.ASCII)
WRITE_VALUE = "write the value behind it, or leave it out"
SUBCOMMAND = "serve"
ONCE = "write it once"
MOST_KEYS = 16  # of one dotted name
REPEATABLE = frozenset({"middleware"})  # each time adds one
SWITCHES = {"flag", "switch"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """An option as set: by its own name, and as the file spells it."""

    name: str
    spelled: str
    place: Place
    value: str | bool | None  # several values as a JSON list; None: only the machine knows


@dataclass(slots=True, kw_only=True)
class Arguments:
    """Arguments of a command line, in order."""

    given: list[Given] = field(default_factory=list)
    remarks: list[Remark] = field(default_factory=list)

    def settings(self) -> dict[str, Given]:
        """Return each option as the engine ends up with it: the last one wins."""
        return {given.name: given for given in self.given}


@dataclass(frozen=True, slots=True, kw_only=True)
class Grammar:
    """Grammar of an engine's command-line parser."""

    who: str
    schema: EngineSchema
    version: str
    is_flexible: bool = False  # vLLM's parser: underscores, one dash, dotted keys
    takes_model: bool = False  # the first word that is not an option
    model: str = "model"  # the option that it is short for
    short: Mapping[str, str] = field(default_factory=dict)


def vllm_grammar(schema: EngineSchema, version: str, *, takes_model: bool) -> Grammar:
    """Return how vLLM's own parser reads."""
    return Grammar(
        who="vLLM",
        schema=schema,
        version=version,
        is_flexible=True,
        takes_model=takes_model,
        short={
            short: row["name"]
            for short, row in _short_names()["vllm"].items()
            if row["name"] in schema.options
            and is_within(version, row.get("since", ""), row.get("before", ""))
        },
    )


def read_arguments(words: Sequence[Word], grammar: Grammar) -> Arguments:
    """Read the words behind an engine's command."""
    return _Reader(words, grammar).read()


class _Reader:
    def __init__(self, words: Sequence[Word], grammar: Grammar) -> None:
        self.words, self.grammar = [*words], grammar
        self.found = Arguments()
        self.dotted: dict[str, tuple[Given, dict[str, Any]]] = {}
        self.model_read = not grammar.takes_model
        self.may_be_model = False
        self.options: dict[str, tuple[Option, bool]] = {}
        for option in grammar.schema.options.values():
            for name in (option.name, *option.aliases):
                self.options[f"--{name}"] = (option, True)
                if option.type == "switch":
                    self.options[f"--no-{name}"] = (option, False)
            for name in option.inverses:
                self.options[f"--{name}"] = (option, False)

    def read(self) -> Arguments:
        if self.grammar.is_flexible:
            self._take_dotted()
        while self.words:
            word = self.words.pop(0)
            text = word.text
            if not word.known and not text.startswith("-"):
                self._unread(word)  # a variable with further options, perhaps
                continue
            if text == "--":
                continue
            if self.grammar.is_flexible and text.startswith("-O") and text != "-O":
                self._level(word)
            elif text.startswith("-") and len(text) > 1 and not NUMBER.fullmatch(text):
                self._option(word)
            elif not self.model_read and text == SUBCOMMAND and self._is_doubled():
                message = f"{text!r} is given twice, and the second is taken for the model"
                self._remark(word.place, Finding("error", "argument-refused", message, ONCE))
            elif not self.model_read:
                self.model_read = True
                self._give(self.grammar.model, text, word, text if word.known else None)
            else:
                message = f"{self.grammar.who} accepts no argument {shorten(text, 60)} here"
                hint = "write it as the value of an option, and one with spaces in quotes"
                self._remark(word.place, Finding("error", "argument-refused", message, hint))
        for name, (given, value) in self.dotted.items():
            text = json.dumps(value, separators=(",", ":"))
            self.found.given.append(replace(given, name=name, value=text))
        self._repeated()
        return self.found

    def _unread(self, word: Word) -> None:
        """Remark on options that only the server's machine knows; one word may be the model."""
        if self.model_read or self.may_be_model:
            message = f"{shorten(word.text, 60)} is not known here: options in it were not checked"
            hint = "write them out, or check the server's whole command line"
            self._remark(word.place, Finding("note", "options-unread", message, hint))
        self.may_be_model = True

    def _is_doubled(self) -> bool:
        """Report whether the model comes after the word that would be read as it."""
        return bool(self.words) and not self.words[0].text.startswith("-")

    def _option(self, word: Word) -> None:
        spelled, equals, value = word.text.partition("=")
        explicit = Word(value, word.place, word.known) if equals else None
        name = spelled
        if self.grammar.is_flexible:
            name = spelled.replace("_", "-") if spelled.startswith("--") else spelled
            if name == "-O" and self.words and self.words[0].text in {"0", "1", "2", "3"}:
                self._give(LEVEL, spelled, word, self.words.pop(0).text)
                return
        option, is_on = self._find(word, name, spelled)
        if option is None:
            self._unknown(word, name, spelled, explicit)
        elif option.type in SWITCHES:
            self._switch(word, spelled, option, explicit, is_on=is_on)
        else:
            self._valued(word, spelled, option, explicit)

    def _find(self, word: Word, name: str, spelled: str) -> tuple[Option | None, bool]:
        """Find the option that is named, by its beginning where that is of one option alone."""
        long = f"--{self.grammar.short[name]}" if name in self.grammar.short else name
        if long in self.options:
            return self.options[long]
        if not name.startswith("--") or len(name) < 3:
            return None, True
        meant = [known for known in self.options if known.startswith(name)]
        if len(meant) == 1:
            whole = meant[0]
            self._abbreviated(word, name, spelled, whole)
            return self.options[whole]
        return None, True

    def _abbreviated(self, word: Word, name: str, spelled: str, whole: str) -> None:
        message = f"{spelled!r} is read as an abbreviation of {whole!r}"
        gone = find_missing(self.grammar.schema, name.lstrip("-"), self.grammar.version)
        if gone is not None:  # another option, which only begins so
            self._remark(word.place, Finding("error", "option-abbreviated", message, gone.hint))
            return
        hint = "write it in full: another version may have a second option that begins so"
        self._remark(word.place, Finding("note", "option-abbreviated", message, hint))

    def _unknown(self, word: Word, name: str, spelled: str, explicit: Word | None) -> None:
        who, version, schema = self.grammar.who, self.grammar.version, self.grammar.schema
        begin = sorted(known for known in self.options if known.startswith(name))
        dashed = name.lstrip("-").replace("_", "-")
        gone = find_missing(schema, dashed, version)
        first, blank, behind = spelled.partition(" ")
        message = f"{who} {version} has no option {shorten(spelled, 60)}"
        old, new = "", ""
        if blank and first in self.options:
            old, new = spelled, f"{first}={behind.strip()}"
            message += ": two words stand in one"
            hint = f"write them apart, or as {shorten(new, 60)}"
        elif gone is not None:
            hint = gone.hint
            if gone.to and (self.grammar.is_flexible or "." not in gone.to):
                old, new = spelled, f"--{gone.to}"
        elif name.startswith("--") and len(name) > 3 and begin:
            message = f"{who} {version} does not know which option {spelled!r} begins"
            hint = f"write it in full: {', '.join(begin[:6])}"
        elif f"--{dashed}" in self.options:
            hint, old, new = f"write it as --{dashed}", spelled, f"--{dashed}"
        else:
            close = nearest(dashed, schema.options)
            hint = f"did you mean '--{close}'?" if close else "leave it out"
        self._remark(word.place, Finding("error", "key-dropped", message, hint), old, new)
        if explicit is None and not blank:
            self._values()

    def _switch(
        self, word: Word, spelled: str, option: Option, explicit: Word | None, *, is_on: bool
    ) -> None:
        value, joint = "", "="
        if explicit is not None:
            value, message = explicit.text, f"{self.grammar.who} accepts no value for {spelled!r}"
        elif self.words and self.words[0].text.lower() in {"true", "false"}:
            value, joint = self.words.pop(0).text, " "
            message = f"{self.grammar.who} accepts no value for {spelled!r}, but {value!r} follows"
        if value or explicit is not None:
            hint = f"write {spelled} alone" + (
                f", or --no-{option.name}" if option.type == "switch" else ", or leave it out"
            )
            meant = {"true": spelled, "false": f"--no-{option.name}"}.get(value.lower(), "")
            is_sure = is_on and (value.lower() == "true" or option.type == "switch")
            old, new = (f"{spelled}{joint}{value}", meant) if meant and is_sure else ("", "")
            self._remark(word.place, Finding("error", "value-refused", message, hint), old, new)
        self._give(option.name, spelled, word, is_on)

    def _valued(self, word: Word, spelled: str, option: Option, explicit: Word | None) -> None:
        values = [explicit] if explicit is not None else self._values(most=not option.many)
        if not values:
            message = f"{self.grammar.who} wants a value behind {spelled!r}"
            self._remark(word.place, Finding("error", "value-missing", message, WRITE_VALUE))
            return
        if not all(value.known for value in values):
            self._give(option.name, spelled, word, None)
        elif len(values) == 1:
            self._give(option.name, spelled, word, values[0].text)
        else:
            listed = json.dumps([value.text for value in values], separators=(",", ":"))
            self._give(option.name, spelled, word, listed)

    def _values(self, *, most: bool = False) -> list[Word]:
        """Consume values: all up to the next option, or one."""
        values: list[Word] = []
        while self.words and not (most and values):
            if _is_option(self.words[0].text):
                break
            values.append(self.words.pop(0))
        return values

    def _take_dotted(self) -> None:
        """Remove `--option.key value` words first, as vLLM does."""
        words, self.words = self.words, []
        while words:
            word = words.pop(0)
            spelled, equals, value = word.text.partition("=")
            is_number = NUMBER.fullmatch(word.text) is not None
            if not spelled.startswith("-") or "." not in spelled or is_number:
                self.words.append(word)
                continue
            given = Word(value, word.place, word.known) if equals else None
            if given is None and words:
                given = words.pop(0)  # whatever it is
            head, _, tail = spelled.partition(".")
            self._dotted(word, head.replace("_", "-"), tail, given, is_apart=not equals)

    def _dotted(
        self, word: Word, head: str, tail: str, given: Word | None, *, is_apart: bool
    ) -> None:
        """Collect `--option.key.key value` into the option's JSON."""
        spelled = word.text.partition("=")[0]
        option, _ = self._find(word, head, head)
        if option is None:
            self._unknown(word, head, spelled, given or word)
            return
        adds = tail.endswith("+")
        *path, last = tail.removesuffix("+").split(".")
        if given is None or (is_apart and _is_option(given.text)):
            message = f"{self.grammar.who} wants a value behind {shorten(spelled, 60)}"
            if given is not None:
                message += f", and takes {shorten(given.text, 60)} for it"
            self._remark(word.place, Finding("error", "value-missing", message, WRITE_VALUE))
            return
        if len(path) >= MOST_KEYS:
            message = f"{shorten(spelled, 60)} has more than {MOST_KEYS} keys"
            hint = "write the whole value as JSON"
            self._remark(word.place, Finding("error", "value-refused", message, hint))
            return
        first = Given(name=option.name, spelled=spelled, place=word.place, value="")
        _, whole = self.dotted.setdefault(option.name, (first, {}))
        if not given.known:
            return
        value: Any = given.text.split(",") if adds else _read_value(given.text)
        for key in path:
            inner = whole.setdefault(key, {})
            if not isinstance(inner, dict):
                inner = whole[key] = {}
            whole = inner
        earlier = whole.get(last)
        whole[last] = [*earlier, *value] if adds and isinstance(earlier, list) else value

    def _level(self, word: Word) -> None:
        """Read `-O3`: a level of optimization, or before that of compilation."""
        value = word.text[3:] if word.text[2] == "=" else word.text[2:]
        if LEVEL in self.grammar.schema.options:
            self._give(LEVEL, word.text, word, value)
        elif "compilation-config" in self.grammar.schema.options:
            self._give("compilation-config", word.text, word, value)

    def _give(self, name: str, spelled: str, word: Word, value: str | bool | None) -> None:
        self.found.given.append(Given(name=name, spelled=spelled, place=word.place, value=value))

    def _repeated(self) -> None:
        last: dict[str, Given] = {}
        for given in self.found.given:
            earlier = last.get(given.name)
            last[given.name] = given
            if earlier is None or given.name in REPEATABLE:
                continue
            message = (
                f"{earlier.spelled!r} has no effect: {given.spelled!r} in line "
                f"{given.place.line} gives it again, and the last one wins"
            )
            self._remark(
                earlier.place, Finding("warning", "setting-repeated", message, "give it once")
            )

    def _remark(self, place: Place, finding: Finding, old: str = "", new: str = "") -> None:
        edit = Edit(place=place, old=old, new=new) if old else None
        self.found.remarks.append(Remark(place, finding, edit))


def _is_option(text: str) -> bool:
    """Report whether a parser takes a word for an option: a dash first, no number, no space."""
    return len(text) > 1 and text[0] == "-" and " " not in text and not NUMBER.fullmatch(text)


def _read_value(text: str) -> Any:
    """Read a value as vLLM reads those behind dotted keys: JSON, a size, or text."""
    try:
        return parse_json(text.encode())
    except (NotStrict, UnicodeEncodeError):
        pass
    return int(read_size(text)) if SIZE.fullmatch(text) else text


@cache
def _short_names() -> Mapping[str, Any]:
    return read_shipped(SHORT)

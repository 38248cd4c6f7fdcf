"""Which of an engine's parsers read a model's tool calls and reasoning: `data/parsers.toml`.

The chat template shows how the model writes them.  It is a stranger's text: marks are searched in
it, nothing of it is run.  A parser is chosen where the version has it, and where the tokenizer has
the tokens without which it does not start; else the plan says why there is none.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from packager.core.documents import shorten
from packager.core.findings import Finding
from packager.core.model import ModelFiles
from packager.core.nearness import nearest
from packager.core.parsers import ChatTemplate, ChosenParser
from packager.core.request import BuildRequest
from packager.core.split import Abilities
from packager.planning.key_options import plain_name

TABLE = Path(__file__).parent / "data" / "parsers.toml"

AUTO, OFF = "auto", "off"
ENGINES = ("vllm", "sglang")
BY_TOKENS = ("vllm",)  # engines whose parsers look their tokens up; others search the text
SHOWS_TOOLS = re.compile(r"\{[%{][^{}%]{0,400}?\btools\b")  # the variable that holds the tools
THINKS = "<think>"  # what most models that reason begin with
MOST_NAMED = 12

What = Literal["tool", "reasoning"]
OPTIONS: Mapping[What, str] = {"tool": "tool-call-parser", "reasoning": "reasoning-parser"}
WORDS: Mapping[What, str] = {"tool": "tool calls", "reasoning": "reasoning"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """One way in which models write tool calls or reasoning."""

    name: str
    marks: tuple[str, ...]
    names: Mapping[str, tuple[str, ...]]  # engine → parsers, the preferred first
    source: str
    without: tuple[str, ...] = ()
    model_types: tuple[str, ...] = ()
    tokens: tuple[str, ...] = ()
    instead: str = ""  # why an engine has no name here
    models: str = ""

    def is_written_by(self, template: str, model_type: str) -> bool:
        """Check whether a template of a model of this type writes so."""
        return (
            (not self.model_types or model_type in self.model_types)
            and all(mark in template for mark in self.marks)
            and not any(mark in template for mark in self.without)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Parsers:
    """What the engine is told to read answers with."""

    tool: ChosenParser | None = None
    reasoning: ChosenParser | None = None
    findings: tuple[Finding, ...] = ()


def choose_parsers(
    request: BuildRequest, model: ModelFiles, engine: str, abilities: Abilities
) -> Parsers:
    """Choose both parsers. An option of the engine's own wins over the request's field."""
    chosen: dict[What, ChosenParser | None] = {}
    findings: list[Finding] = []
    asked: Mapping[What, str | None] = {
        "tool": request.tool_call_parser,
        "reasoning": request.reasoning_parser,
    }
    lists: Mapping[What, tuple[str, ...] | None] = {
        "tool": abilities.tool_parsers,
        "reasoning": abilities.reasoning_parsers,
    }
    for what in OPTIONS:
        found = _choose(
            what, asked[what] or AUTO, request.engine_options or {}, model, engine, lists[what]
        )
        if isinstance(found, Finding):
            chosen[what] = None
            findings.append(_named(found, abilities.who))
        else:
            chosen[what] = found
    return Parsers(tool=chosen["tool"], reasoning=chosen["reasoning"], findings=tuple(findings))


def names_tokens(template: str) -> bool:
    """Report whether a template writes a token that some parser needs."""
    return any(token in template for token in _all_tokens())


@cache
def dialects() -> Mapping[What, tuple[Dialect, ...]]:
    """Read the table."""
    table: dict[str, Any] = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    sources = f"{table['vllm_source']}; {table['sglang_source']} ({table['date']})"
    return {
        what: tuple(
            Dialect(
                name=row["name"],
                marks=tuple(row["marks"]),
                names={engine: tuple(row.get(engine, ())) for engine in ENGINES},
                source=row.get("source", sources),
                without=tuple(row.get("without", ())),
                model_types=tuple(row.get("model_types", ())),
                tokens=tuple(row.get("tokens", ())),
                instead=row.get("instead", ""),
                models=row["models"],
            )
            for row in table[what]
        )
        for what in OPTIONS
    }


@cache
def _all_tokens() -> frozenset[str]:
    return frozenset(token for rows in dialects().values() for row in rows for token in row.tokens)


def _choose(
    what: What,
    asked: str,
    options: Mapping[str, str],
    model: ModelFiles,
    engine: str,
    known: tuple[str, ...] | None,
) -> ChosenParser | Finding | None:
    by_option = next(_asked(what, options), None)
    if by_option is not None:
        return ChosenParser(name=by_option, reason="an engine option says so")
    if asked == OFF or (asked == AUTO and (known == () or model.chat_template is None)):
        return None
    if asked != AUTO:
        return _by_name(what, asked, known)
    assert model.chat_template is not None
    return _by_template(
        what, model.chat_template, str(model.config.get("model_type")), engine, known
    )


def _asked(what: What, options: Mapping[str, str]) -> Iterator[str]:
    for name, value in options.items():
        if plain_name(name).removeprefix("option.") == OPTIONS[what]:
            yield value


def _by_name(what: What, asked: str, known: tuple[str, ...] | None) -> ChosenParser | Finding:
    if known is None or asked in known:
        return ChosenParser(name=asked, reason="asked for")
    message = f"{{who}} has no parser {asked!r} for {WORDS[what]}"
    if not known:
        return Finding("error", "parser-unknown", message, f"leave {OPTIONS[what]} out")
    close = nearest(asked, known)
    hint = f"did you mean {close!r}?" if close else f"it has {', '.join(known[:MOST_NAMED])}"
    return Finding("error", "parser-unknown", message, hint)


def _by_template(
    what: What,
    template: ChatTemplate,
    model_type: str,
    engine: str,
    known: tuple[str, ...] | None,
) -> ChosenParser | Finding | None:
    rows = dialects()[what]
    shows_tools = SHOWS_TOOLS.search(template.text) is not None
    of_type = shorten(model_type, 40)
    found = next((row for row in rows if row.is_written_by(template.text, model_type)), None)
    if found is None:
        if what == "tool" and shows_tools:
            return _unchosen(what, "how the model writes its calls is not in packager's table")
        if what == "reasoning" and THINKS in template.text:
            because = f"the chat template writes {THINKS} and the model is of type {of_type}"
            return _unchosen(what, f"{because}, which is not in packager's table")
        return None
    because = f"the chat template writes {_shown(found)}"
    if found.model_types:
        because += f" and the model is of type {of_type}"
    if what == "tool" and not shows_tools:
        return _unchosen(what, f"{because}, but shows the model no tools")
    names = found.names.get(engine, ())
    if not names:
        reason = found.instead or "{who} has no parser for it"
        return _unchosen(what, f"{because}, and {reason}")
    if known is None:
        return _unchosen(what, f"{because}, and which parsers {{who}} has is not known")
    name = next((one for one in names if one in known), None)
    if name is None:
        return _unchosen(what, f"{because}, and {{who}} has no parser {names[0]!r} yet")
    if engine in BY_TOKENS and (lacks := _lacking(found, template)):
        return _unchosen(what, f"{because}, but {lacks}")
    return ChosenParser(name=name, reason=because, source=found.source)


def _shown(dialect: Dialect) -> str:
    """Return the mark that a reader recognizes, as it stands in answers."""
    return dialect.marks[0].replace("\\n", " ").replace("'", "")


def _lacking(dialect: Dialect, template: ChatTemplate) -> str:
    """Name the token that the parser looks for and the tokenizer lacks; "" where none is."""
    if not dialect.tokens:
        return ""
    if template.tokens is None:
        return "the tokens that were added to its tokenizer cannot be read"
    lacking = next((token for token in dialect.tokens if token not in template.tokens), "")
    return f"its tokenizer has no token {lacking!r}, which the parser needs" if lacking else ""


def _unchosen(what: What, reason: str) -> Finding:
    message = f"no parser for {WORDS[what]} is chosen: {reason}"
    lost = {
        "tool": "tool calls come as text, or are refused",
        "reasoning": "reasoning comes in the answer's text",
    }[what]
    hint = f"without one {lost}; name one with --{OPTIONS[what]}, or use `off`"
    return Finding("note", "parser-not-chosen", message, hint)


def _named(found: Finding, who: str) -> Finding:
    return Finding(found.severity, found.code, found.message.replace("{who}", who), found.hint)

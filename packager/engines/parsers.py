"""Choice of the engine's parsers for a model's tool calls and reasoning: `catalog.parsers`.

The chat template shows how the model writes them.  It is untrusted: only marks are searched in it,
it is never executed.  A parser is chosen where the version has it, and where the tokenizer has the
tokens without which it does not start; else the plan states the reason.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from packager.catalog.parsers import Dialect, What, dialects
from packager.core.documents import shorten
from packager.core.findings import Finding
from packager.core.key_options import plain_name
from packager.core.model import ModelFiles
from packager.core.parsers import ChatTemplate, ChosenParser
from packager.core.suggestions import guess
from packager.core.traits import EngineTraits

AUTO, OFF = "auto", "off"
SHOWS_TOOLS = re.compile(r"\{[%{][^{}%]{0,400}?\btools\b")  # the variable that holds the tools
THINKS = "<think>"  # what most models that reason begin with
MOST_NAMED = 12

OPTIONS: Mapping[What, str] = {"tool": "tool-call-parser", "reasoning": "reasoning-parser"}
WORDS: Mapping[What, str] = {"tool": "tool calls", "reasoning": "reasoning"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Parsers:
    """Parsers that the engine reads answers with."""

    tool: ChosenParser | None = None
    reasoning: ChosenParser | None = None
    findings: tuple[Finding, ...] = ()


def choose_parsers(
    requested: Mapping[What, str | None],
    options: Mapping[str, str],
    model: ModelFiles,
    engine: str,
    traits: EngineTraits,
) -> Parsers:
    """Choose both parsers. An option of the engine's own wins over a requested parser."""
    chosen: dict[What, ChosenParser | None] = {}
    findings: list[Finding] = []
    for what in OPTIONS:
        found = _choose(what, requested[what] or AUTO, options, model, engine, traits)
        if isinstance(found, Finding):
            chosen[what] = None
            findings.append(_named(found, traits.who))
        else:
            chosen[what] = found
    return Parsers(tool=chosen["tool"], reasoning=chosen["reasoning"], findings=tuple(findings))


def _choose(
    what: What,
    asked: str,
    options: Mapping[str, str],
    model: ModelFiles,
    engine: str,
    traits: EngineTraits,
) -> ChosenParser | Finding | None:
    known = traits.tool_parsers if what == "tool" else traits.reasoning_parsers
    by_option = next(_by_option(what, options), None)
    if by_option is not None:
        return ChosenParser(name=by_option, reason="an engine option says so")
    if asked == OFF or (asked == AUTO and (known == () or model.chat_template is None)):
        return None
    if asked != AUTO:
        return _by_name(what, asked, known)
    assert model.chat_template is not None
    return _by_template(
        what,
        model.chat_template,
        str(model.config.get("model_type")),
        engine,
        known,
        by_token=traits.parses_by_token,
    )


def _by_option(what: What, options: Mapping[str, str]) -> Iterator[str]:
    for name, value in options.items():
        if plain_name(name).removeprefix("option.") == OPTIONS[what]:
            yield value


def _by_name(what: What, asked: str, known: tuple[str, ...] | None) -> ChosenParser | Finding:
    if known is None or asked in known:
        return ChosenParser(name=asked, reason="asked for")
    message = f"{{who}} has no parser {asked!r} for {WORDS[what]}"
    if not known:
        return Finding("error", "parser-unknown", message, f"leave {OPTIONS[what]} out")
    hint = guess(asked, known, f"it has {', '.join(known[:MOST_NAMED])}")
    return Finding("error", "parser-unknown", message, hint)


def _by_template(
    what: What,
    template: ChatTemplate,
    model_type: str,
    engine: str,
    known: tuple[str, ...] | None,
    *,
    by_token: bool,
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
    if by_token and (lacks := _lacking(found, template)):
        return _unchosen(what, f"{because}, but {lacks}")
    return ChosenParser(name=name, reason=because, source=found.source)


def _shown(dialect: Dialect) -> str:
    """Return the mark that a reader recognizes, as it stands in answers."""
    return dialect.marks[0].replace("\\n", " ").replace("'", "")


def _lacking(dialect: Dialect, template: ChatTemplate) -> str:
    """Return the token that the parser needs and the tokenizer lacks; "" where none is lacking."""
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

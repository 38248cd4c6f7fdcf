"""Checks of SGLang's options: against its parser's table, as words of a command line."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping

from packager.core.findings import Finding
from packager.core.plan import Plan
from packager.engines.rules import NO_FACTS, Facts, check_rules
from packager.engines.schema import EngineSchema, check_value, value_tokens
from packager.engines.sglang.render import ALGORITHMS
from packager.engines.shared import draft_unsupported
from packager.engines.successors import hint_for

NUMBER = re.compile(r"-(\d+|\d*\.\d+)", re.ASCII)  # below zero, as argparse reads it


def check_draft(plan: Plan, schema: EngineSchema) -> Iterator[Finding]:
    if plan.draft is None:
        return
    if ALGORITHMS.get(plan.draft.kind) not in schema.draft_methods:
        who = f"SGLang {plan.container.engine_version}"
        yield from draft_unsupported(plan, who, "use --family vllm, or another draft")


def check_options(
    meant: Mapping[str, str],
    schema: EngineSchema,
    facts: Facts = NO_FACTS,
    *,
    version: str = "",
    one_word: bool,
    judged: Collection[str] = (),
) -> Iterator[Finding]:
    """Find options that this version does not have, values and combinations that it refuses.

    `one_word`: the image's entrypoint passes every value as one word.  `judged` names options whose
    values are already checked.
    """
    for name, value in meant.items():
        if name in judged:
            continue
        option = schema.options.get(name)
        if option is None:
            message = f"SGLang {schema.version} has no option {name!r}"
            yield Finding("error", "key-dropped", message, hint_for(schema, name))
            continue
        words = value_tokens(option, value)
        for word in words:
            yield from check_value("SGLang", option, name, word, meant)
        if option.type not in {"flag", "switch"}:
            yield from _check_words(name, words, one_word=one_word)
    of_version = version or schema.version
    yield from check_rules(
        "SGLang", "sglang", of_version, meant, facts=facts, options=schema.options
    )


def _check_words(name: str, words: tuple[str, ...], *, one_word: bool) -> Iterator[Finding]:
    """Refuse values that SGLang would not get as they are, one word of the command line each."""
    if one_word and len(words) > 1:
        message = f"the image passes one value for {name!r}, and {len(words)} are given"
        yield Finding("error", "value-refused", message, "give one, or use upstream's image")
    for word in words or ("",):
        if word.lower() in {"true", "false"}:
            message = f"the image reads {word!r} for {name!r} as a switch, and drops the value"
            yield Finding("error", "value-refused", message, "choose another value")
        elif not word or _is_like_an_option(word):
            message = f"SGLang would not take {word!r} as a value of {name!r}"
            yield Finding("error", "value-refused", message, "choose another value")


def _is_like_an_option(word: str) -> bool:
    """Report whether argparse takes a word for an option: a dash first, no number, no space."""
    return len(word) > 1 and word[0] == "-" and " " not in word and not NUMBER.fullmatch(word)

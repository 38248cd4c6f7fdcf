"""Command lines are read as Python's own parser reads them: it is the one inside SGLang and vLLM.

Options of a small table are given to a real `argparse.ArgumentParser` and to packager's reader:
they must agree on whether a line is taken, and on every value.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json

from hypothesis import example, given, settings
from hypothesis import strategies as st

from packager.addons.check.arguments import Grammar, read_arguments
from packager.addons.check.values import Word
from packager.core.positions import Place
from packager.engines.schema import EngineSchema, Option
from tests.support.cases import as_type, read_tables

SCHEMA = EngineSchema(
    engine="sglang",
    version="1.0",
    options={
        option.name: option
        for option in as_type(read_tables(__file__)["options"], tuple[Option, ...])
    },
)
GRAMMAR = Grammar(who="SGLang", schema=SCHEMA, version="1.0")


def real_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(exit_on_error=False, add_help=False)
    for option in SCHEMA.options.values():
        names = [f"--{name}" for name in (option.name, *option.aliases)]
        if option.type == "flag":
            parser.add_argument(*names, action="store_true", default=None)
        elif option.type == "switch":
            parser.add_argument(*names, action=argparse.BooleanOptionalAction)
        else:
            parser.add_argument(*names, nargs="+" if option.many else None)
    return parser


PARSER = real_parser()


def by_argparse(words: list[str]) -> dict[str, object] | None:
    """Return the values that were given; None where the line is refused."""
    with contextlib.redirect_stderr(io.StringIO()):
        try:
            read = PARSER.parse_args(words)
        except (SystemExit, argparse.ArgumentError):
            return None
    return {name: value for name, value in vars(read).items() if value is not None}


def by_packager(words: list[str]) -> dict[str, object] | None:
    place = Place("line")
    read = read_arguments([Word(word, place) for word in words], GRAMMAR)
    if any(remark.finding.severity == "error" for remark in read.remarks):
        return None
    found: dict[str, object] = {}
    for name, one in read.settings().items():
        value: object = one.value
        if SCHEMA.options[name].many and isinstance(value, str):
            value = json.loads(value) if value.startswith("[") else [value]
        found[name.replace("-", "_")] = value
    return found


WORDS = st.sampled_from(
    [
        *("--model-path", "--model", "--mod", "--m", "--max", "--max-r", "--max-total-tokens"),
        *("--tp", "--tp-size", "--tp_size", "--tensor", "--tp-size=2", "--tp-size=", "--tp=-1"),
        *("--trust-me", "--trust", "--trust-me=true", "--prefix-caching", "--no-prefix-caching"),
        *("--no-prefix", "--prefix-caching=false", "--lora-paths", "--lora", "--lora-paths=a"),
        *read_tables(__file__)["words"],
    ]
)


@settings(max_examples=400, derandomize=True)
@given(words=st.lists(WORDS, max_size=7))
@example(words=["--tp-size", "-1"])
@example(words=["--lora-paths", "a", "b", "--tp", "2"])
@example(words=["--tp-size", "1", "--tp-size", "2"])
@example(words=["--no-prefix"])
@example(words=["--tp-size", "-a b"])
@example(words=["--lora-paths", "a", "- x"])
def test_a_line_is_taken_and_read_as_argparse_does(words: list[str]) -> None:
    assert by_packager(words) == by_argparse(words)

"""Options that are gone: every version says what stands for each, and guesses none of them."""

from __future__ import annotations

import re

import pytest

from packager.core.share import read_shipped
from packager.core.versions import is_before
from packager.engines.schema import EngineSchema, find_schema, shipped_versions
from packager.engines.successors import OPTION, SUCCESSORS, find_missing, hint_for
from tests.support.cases import cases

NAMES = {
    engine: {
        name
        for version in shipped_versions(engine)
        for option in find_schema(engine, version).options.values()
        for name in (option.name, *option.aliases, *option.inverses)
    }
    for engine in ("vllm", "sglang", "tgi")
}


def has(schema: EngineSchema, name: str) -> bool:
    known = schema.find(name) or schema.find_inverse(name)
    return known is not None or name in schema.options


@pytest.mark.parametrize("engine", NAMES)
def test_every_option_that_was_is_told_of_in_every_version_without_it(engine: str) -> None:
    for version in shipped_versions(engine):
        schema = find_schema(engine, version)
        for name in NAMES[engine]:
            if has(schema, name):
                continue
            missing = find_missing(schema, name)
            assert missing is not None, f"{engine} {version} {name}"
            assert re.match(r"removed after \S+: |it came after \S+, with ", missing.hint)
            assert all(schema.find(one) for one in OPTION.findall(missing.hint)), missing


@pytest.mark.parametrize("engine", NAMES)
def test_every_row_is_of_an_option_that_went(engine: str) -> None:
    for name in read_shipped(SUCCESSORS)[engine]["options"]:
        having = [one for one in shipped_versions(engine) if has(find_schema(engine, one), name)]
        without = set(shipped_versions(engine)) - set(having)
        assert any(is_before(having[0], one) for one in without), name


@cases("hints")
def test_what_stands_for_an_option_is_told(target: list[str], name: str, hint: str) -> None:
    assert hint_for(find_schema(*target), name) == hint

"""Values that an engine looks up, or turns into its own classes, when it starts."""

from __future__ import annotations

from packager.engines.schema import Option, check_value
from packager.engines.values import read_configs
from tests.support.cases import cases, read_tables

CONFIGS = read_configs(read_tables(__file__)["classes"])
PARSERS = ("hermes", "llama3_json")
OPTIONS = {
    option.name: option
    for option in (
        Option(name="compilation-config", type="json", config=CONFIGS["CompilationConfig"]),
        Option(name="open-config", type="json", config=CONFIGS["OpenConfig"]),
        Option(name="tool-call-parser", type="text", values=PARSERS, opened_by="plugin"),
    )
}


@cases("taken", beside={})
def test_a_value_that_the_engine_takes_is_taken(
    option: str, text: str, beside: dict[str, str]
) -> None:
    assert not list(check_value("vLLM", OPTIONS[option], option, text, beside))


@cases("refused", hint="")
def test_a_value_that_the_engine_refuses_is_refused(
    option: str, text: str, code: str, words: str, hint: str
) -> None:
    (finding,) = check_value("vLLM", OPTIONS[option], option, text)

    assert (finding.severity, finding.code) == ("error", code)
    assert words in finding.message
    assert hint in finding.hint

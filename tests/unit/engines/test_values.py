"""Values that an engine looks up, or turns into its own classes, when it starts."""

from __future__ import annotations

import pytest

from packager.engines.schema import Option, check_value
from packager.engines.values import read_configs

CONFIGS = read_configs(
    {
        "CompilationConfig": {
            "fields": {
                "mode": {"type": "int", "choices": [0, 1, 2, 3]},
                "backend": {"type": "text"},
                "cache_dir": {"type": "text", "optional": True},
                "pass_config": {"type": "object", "config": "PassConfig"},
            }
        },
        "PassConfig": {"fields": {"fuse": {"type": "bool"}}},
        "OpenConfig": {"fields": {"port": {"type": "int"}}, "closed": False},
    }
)
COMPILATION = Option(name="compilation-config", type="json", config=CONFIGS["CompilationConfig"])
OPEN = Option(name="open-config", type="json", config=CONFIGS["OpenConfig"])
PARSER = Option(
    name="tool-call-parser", type="text", values=("hermes", "llama3_json"), opened_by="plugin"
)


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        '{"mode": 3, "backend": "inductor"}',
        '{"cache_dir": null}',
        '{"pass_config": {"fuse": true}}',
    ],
)
def test_a_config_that_the_class_takes_is_taken(text: str) -> None:
    assert not list(check_value("vLLM", COMPILATION, COMPILATION.name, text))


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        ("3", "value-refused", "wants a JSON object for 'compilation-config', not 3"),
        ('{"nonsense": 1}', "key-dropped", "no 'nonsense' in 'compilation-config'"),
        ('{"mode": 4}', "value-refused", "refuses 4 for 'compilation-config.mode'"),
        ('{"mode": true}', "value-refused", "refuses true for 'compilation-config.mode'"),
        ('{"backend": null}', "value-refused", "refuses null for 'compilation-config.backend'"),
        ('{"backend": 3}', "value-refused", "which is of type text"),
        ('{"pass_config": {"fuze": true}}', "key-dropped", "in 'compilation-config.pass_config'"),
        ('{"pass_config": [true]}', "value-refused", "which is of type object"),
    ],
)
def test_a_config_that_the_class_refuses_is_refused(text: str, code: str, words: str) -> None:
    (finding,) = check_value("vLLM", COMPILATION, COMPILATION.name, text)
    assert (finding.severity, finding.code) == ("error", code)
    assert words in finding.message


def test_an_open_class_takes_other_keys_and_checks_its_own() -> None:
    assert not list(check_value("vLLM", OPEN, OPEN.name, '{"more": 1}'))
    (finding,) = check_value("vLLM", OPEN, OPEN.name, '{"port": "x"}')
    assert finding.code == "value-refused"


def test_a_name_that_is_looked_up_later_is_checked_now() -> None:
    assert not list(check_value("vLLM", PARSER, PARSER.name, "hermes"))
    (finding,) = check_value("vLLM", PARSER, PARSER.name, "hermez")
    assert (finding.code, finding.hint) == ("value-refused", "did you mean 'hermes'?")


def test_a_plug_in_may_bring_other_names() -> None:
    assert not list(check_value("vLLM", PARSER, PARSER.name, "mine", {"plugin": "/mine.py"}))


def test_text_is_no_number_to_a_class_that_does_not_say_so() -> None:
    (finding,) = check_value("vLLM", OPEN, OPEN.name, '{"port": "3"}')
    assert finding.code == "value-refused"

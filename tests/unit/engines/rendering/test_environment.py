from __future__ import annotations

import pytest
from jinja2 import TemplateAssertionError, UndefinedError

from packager.engines.rendering.environment import (
    NotRepresentable,
    environment,
    render_template,
)
from tests.support.cases import cases
from tests.support.refusals import raises_code


def rendered(template: str, **values: object) -> str:
    return environment().from_string(template).render(values)


def test_json_is_minified_ascii_in_the_order_given() -> None:
    assert rendered("{{ v | json }}", v={"b": [1, "ü<>"], "a": None}) == (
        '{"b":[1,"\\u00fc<>"],"a":null}'
    )


def test_a_missing_value_is_an_error_that_names_it() -> None:
    with pytest.raises(UndefinedError, match="'argv' is undefined"):
        render_template("vllm/command.json.j2", env={})


def test_a_value_without_a_filter_is_refused() -> None:
    with raises_code("BareValue", match="without a filter: 'x'"):
        rendered("{{ v }}", v="x")


def test_filters_that_do_not_serialise_do_not_exist() -> None:
    with pytest.raises(TemplateAssertionError, match="No filter named 'upper'"):
        rendered("{{ v | upper }}", v="x")


@pytest.mark.parametrize("value", ["x", "", "a=b:c #!", '{"k":[1,2]}', "~"])
def test_a_property_value_that_all_readers_take_literally_is_printed(value: str) -> None:
    assert rendered("{{ v | property_value }}", v=value) == value


@cases("a_property_value_that_readers_disagree_on_is_refused")
def test_a_property_value_that_readers_disagree_on_is_refused(value: object) -> None:
    with pytest.raises(NotRepresentable):
        rendered("{{ v | property_value }}", v=value)


@pytest.mark.parametrize("key", ["", "a b", "a=b", "a:b", "#a", "!a", "a\\b", "a\n", "ü"], ids=repr)
def test_a_property_key_that_readers_disagree_on_is_refused(key: str) -> None:
    with pytest.raises(NotRepresentable):
        rendered("{{ v | property_key }}", v=key)

"""All that is wrong with a request is told at once, and no secret with it."""

from __future__ import annotations

import pytest

from packager.core.request import parse_request
from packager.errors import UsageError

GOOD = {"model": "org/name", "instance": "local"}


def test_all_unknown_fields_are_told_with_what_they_may_mean() -> None:
    with pytest.raises(UsageError) as caught:
        parse_request({"modell": "x", "instnce": "local", "tp-degree": 2, "zebra": 1})

    assert caught.value.message == (
        "the request has unknown fields 'modell', 'instnce', 'tp-degree', 'zebra'"
    )
    assert caught.value.hint == (
        "did you mean 'model' for 'modell', 'instance' for 'instnce', 'tp_degree' for 'tp-degree'?"
    )


def test_an_unknown_field_like_none_is_told_with_all_there_are() -> None:
    with pytest.raises(UsageError, match="has an unknown field 'zebra'") as caught:
        parse_request({**GOOD, "zebra": 1})

    assert caught.value.hint.startswith("fields of a request: model, instance, ")


def test_all_wrong_values_are_told_with_what_they_are() -> None:
    with pytest.raises(UsageError) as caught:
        parse_request({**GOOD, "tp_degree": -1, "max_batch": "many"})

    assert caught.value.message == (
        "tp_degree -1: input should be greater than or equal to 1; max_batch 'many': input "
        "should be a valid integer, unable to parse string as an integer"
    )


def test_a_value_keeps_the_case_of_its_letters() -> None:
    with pytest.raises(UsageError, match="'4GG' is not a size; write it as 4GiB"):
        parse_request({**GOOD, "max_layer_size": "4GG"})


def test_what_is_inside_a_table_is_never_repeated() -> None:
    options = {"hf-token": 12345678, "api-key": 98765432}
    with pytest.raises(UsageError) as caught:
        parse_request({**GOOD, "engine_options": options})

    assert "engine_options.hf-token: " in caught.value.message
    assert "12345678" not in caught.value.message
    assert "98765432" not in caught.value.message

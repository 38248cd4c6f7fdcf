"""All that is wrong with a request is told at once, and no secret with it."""

from __future__ import annotations

from typing import Any

import pytest

from packager.core.errors import UsageError
from packager.core.request import parse_request
from tests.support.cases import cases

GOOD = {"model": "org/name", "instance": "local"}


@cases("faults", hint="")
def test_all_that_is_wrong_is_told_with_what_it_may_mean(
    fields: dict[str, Any], message: str, hint: str
) -> None:
    with pytest.raises(UsageError) as caught:
        parse_request(fields)

    assert caught.value.message == message
    assert caught.value.hint.startswith(hint)


def test_what_is_inside_a_table_is_never_repeated() -> None:
    options = {"hf-token": 12345678, "api-key": 98765432}
    with pytest.raises(UsageError) as caught:
        parse_request({**GOOD, "engine_options": options})

    assert "engine_options.hf-token: " in caught.value.message
    assert "12345678" not in caught.value.message
    assert "98765432" not in caught.value.message

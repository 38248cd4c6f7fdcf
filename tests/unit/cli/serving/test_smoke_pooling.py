"""A smoke test of a server of vectors or scores tells answers from nonsense."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from packager.cli.serving.smoke_pooling import ask_pooling, cosine, pooling_path
from packager.core.documents import NotStrict
from packager.core.errors import SmokeFailed
from tests.support.cases import cases_of

cases = cases_of(__file__)


@cases("paths")
def test_the_path_is_found_in_what_a_server_says_of_itself(description: Any, path: str) -> None:
    assert pooling_path(description) == path


@cases("answers", second={})
def test_answers_are_read_and_compared(
    path: str, first: dict[str, Any], second: dict[str, Any], said: str
) -> None:
    def ask(where: str, body: Mapping[str, Any]) -> tuple[Any, float]:
        return (second or first) if where == "/invocations" else first, 0.1

    if said.startswith("!"):
        with pytest.raises((SmokeFailed, NotStrict), match=said[1:]):
            ask_pooling(ask, path, "m", "a text")
        return
    answers = ask_pooling(ask, path, "m", "a text")
    assert [one[0] for one in answers] == [path, "/invocations"]
    assert answers[0][1] == said


def test_a_cosine_is_of_directions() -> None:
    assert cosine([1.0, 0.0], [3.0, 0.0]) == 1.0
    assert cosine([1.0, 0.0], [0.0, 2.0]) == 0.0
    assert cosine([0.0], [1.0]) == 0.0

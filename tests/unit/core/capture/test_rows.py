"""Streams as the answers that they make."""

from __future__ import annotations

import json

from packager.core.capture.rows import join_stream
from tests.support.cases import cases_of

cases = cases_of(__file__)


@cases("joined")
def test_a_stream_becomes_the_answer_that_it_makes(
    events: list[str], answer: str, is_whole: bool
) -> None:
    data = "".join(f"data: {event}\n\n" for event in events).encode()

    assert join_stream(data) == (json.loads(answer), is_whole)


@cases("strangers")
def test_a_stream_of_another_kind_stays_as_it_is(text: str) -> None:
    assert join_stream(text.encode()) is None

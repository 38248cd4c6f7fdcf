"""What redaction replaces, alone and inside a JSON body."""

from __future__ import annotations

import base64
import json
import re

import pytest

from packager.core.capture.redaction import _KEY, _may_hold_key, redact_text
from packager.core.capture.rows import CapturedExchange, Options, UnreadableRow, make_row
from tests.support.cases import cases_of

cases = cases_of(__file__)
LETTERS = "a1B2c3D4e5F6g7H8i9J0k1L2"


@cases("replaced")
def test_a_shape_is_replaced(text: str, expected: str) -> None:
    assert redact_text(text.replace("{K}", LETTERS)) == expected


@cases("left")
def test_other_text_is_left(text: str) -> None:
    assert redact_text(text) == text


def test_no_key_is_overlooked_by_the_first_look() -> None:
    """Whatever the pattern finds, the look before it must let pass."""
    marks = re.findall(r"[A-Za-z_.-]+", _KEY.pattern)
    words = [*marks, "pa\u017f\u017fword", "to\u212aen", "BEARER", "api_key", "Api-Key"]
    for word in words:
        for text in (
            f"{word}{LETTERS}",
            f"{word}={LETTERS}",
            f"{word}: {LETTERS}",
            f"{word} {LETTERS}",
        ):
            assert _may_hold_key(text) or not _KEY.search(text), text
    assert _KEY.search(f"pa\u017f\u017fword={LETTERS}")


def exchange(request: bytes) -> CapturedExchange:
    return CapturedExchange(
        id="1",
        at_s=0.0,
        request=request,
        request_type="application/json",
        answer=(b"{}",),
        answer_type="application/json",
    )


def test_an_escape_hides_nothing_in_a_document() -> None:
    body = b'{"messages": [{"content": "a\\u0040example.org"}], "card": 4111111111111111}'

    row = make_row(exchange(body), Options(), redact_text)

    told = json.loads(base64.b64decode(row["captureData"]["endpointInput"]["data"]))
    assert told == {"messages": [{"content": "[EMAIL]"}], "card": "[CARD]"}


def test_what_is_no_text_is_not_written_unredacted() -> None:
    with pytest.raises(UnreadableRow):
        make_row(exchange(b"\xff\xd8"), Options(), redact_text)

"""Every format has rows that are read and rows that are refused with a reason."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from packager.core.samples import Message, Sample
from packager.models.samples.formats import NotASample, read_row
from tests.support.cases import Case, cases


def capture(
    request: object, answer: object = None, encoding: str = "BASE64", broke_off: bool = False
) -> dict[str, Any]:
    def part(value: object, mode: str) -> dict[str, str]:
        data = value if isinstance(value, str) else json.dumps(value)
        if encoding == "BASE64":
            data = base64.b64encode(data.encode()).decode()
        return {"data": data, "encoding": encoding, "mode": mode}

    parts = {"endpointInput": part(request, "INPUT")}
    if answer is not None:
        parts["endpointOutput"] = part(answer, "OUTPUT")
    metadata = {"eventId": "1", "answerBrokeOff": broke_off}
    return {"captureData": parts, "eventMetadata": metadata, "eventVersion": "0"}


def sample_of(case: Case) -> Sample:
    """Make a sample: of turns by their roles or as workers read them, or of texts."""
    if "turns" in case:
        turns = tuple(Message(**turn) for turn in case["turns"])
        return Sample(
            messages=turns, tools=case.get("tools", ""), template=case.get("template", "")
        )
    told = case["sample"]
    if "user" not in told:
        return Sample(**told)
    return Sample(messages=tuple(Message(role=role, content=text) for role, text in told.items()))


def row_of(case: Case) -> object:
    return capture(**case["captured"]) if "captured" in case else case["row"]


@cases("good")
def test_a_row_is_read(case: Case) -> None:
    name, found = read_row(row_of(case))

    assert (name, found) == (case["format"], sample_of(case))
    assert case.get("answered", found.answered) is found.answered


@cases("broken")
def test_a_broken_row_says_why(case: Case) -> None:
    with pytest.raises(NotASample, match=case["reason"]):
        read_row(row_of(case))


def test_half_a_surrogate_pair_is_a_broken_row() -> None:
    with pytest.raises(NotASample, match="surrogate"):
        read_row({"text": "\ud800"})

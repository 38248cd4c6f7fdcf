"""Captured traffic as texts: each conversation once, and some never trained on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from packager.addons.server.refresh.collect import collect, group_of, rows, split
from packager.core.samples import Message, Sample
from packager.models.samples.formats import read_row

TOOLS = [{"type": "function", "function": {"name": "w", "parameters": {}}}]


def captured(messages: list[dict[str, Any]], answer: dict[str, Any], **more: Any) -> str:
    def part(document: Any, mode: str) -> dict[str, str]:
        kind = {"observedContentType": "application/json", "mode": mode, "encoding": "JSON"}
        return {**kind, "data": json.dumps(document)}

    choice = {"index": 0, "message": {"role": "assistant", **answer}, "finish_reason": "stop"}
    row = {
        "captureData": {
            "endpointInput": part({"messages": messages, **more}, "INPUT"),
            "endpointOutput": part({"choices": [choice]}, "OUTPUT"),
        },
        "eventMetadata": {"eventId": "1", "inferenceTime": "2026-12-01T00:00:00Z"},
        "eventVersion": "0",
    }
    return json.dumps(row)


def turn(role: str, content: str) -> dict[str, Any]:
    return {"role": role, "content": content}


def test_a_growing_conversation_is_one_and_goes_to_one_side(tmp_path: Path) -> None:
    lines = []
    for number in range(200):
        first = [turn("user", f"question {number}")]
        grown = [*first, turn("assistant", "yes"), turn("user", "sure?")]
        lines += [captured(first, {"content": "yes"}), captured(grown, {"content": "no"})]
        lines.append(captured(first, {"content": "perhaps"}))  # asked again
    lines.append("{}")
    (tmp_path / "rows.jsonl").write_text("\n".join(lines))

    found = collect(str(tmp_path), 0.25)

    begun = [{one.messages[0].content for one in side} for side in (found.train, found.held_out)]
    assert not begun[0] & begun[1]
    assert len(begun[0] | begun[1]) == 200
    assert found.conversations == 400  # an answer that was asked for again is its own
    assert 30 < len(begun[1]) < 70
    assert found.skipped == 1
    again = split(reversed([*found.train, *found.held_out]), 0.25)
    assert {*again.held_out} == {*found.held_out}


def test_what_is_written_is_read_as_it_was(tmp_path: Path) -> None:
    call = {"id": "1", "type": "function", "function": {"name": "w", "arguments": '{"a": 1}'}}
    lines = [
        captured([turn("user", "weather?")], {"content": None, "tool_calls": [call]}, tools=TOOLS),
        captured([turn("user", "hi")], {"content": "ho", "reasoning": "hm"}),
    ]
    (tmp_path / "rows.jsonl").write_text("\n".join(lines))
    found = collect(str(tmp_path), 0.5)
    samples = (*found.train, *found.held_out)

    assert [read_row(json.loads(line))[1] for line in rows(samples).splitlines()] == [*samples]
    assert {group_of(one) for one in samples} == {"tools, short", "chat, short"}
    assert found.digest == collect(str(tmp_path), 0.5).digest


def test_long_prompts_and_texts_are_sets_of_their_own() -> None:
    long = Sample(
        messages=(Message(role="user", content="x" * 2000), Message(role="a", content=""))
    )
    assert group_of(long) == "chat, long"
    assert group_of(Sample(prompt="x", completion="y")) == "text, short"

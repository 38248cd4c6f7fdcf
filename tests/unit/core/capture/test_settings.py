"""What a front or an image is told to capture, and which conversations and requests that means."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from packager.core.capture.conversations import is_chosen
from packager.core.capture.files import complete_files
from packager.core.capture.keeping import Kept
from packager.core.capture.recorder import Recorder
from packager.core.capture.settings import (
    CaptureSettings,
    is_captured,
    metric_lines,
    open_capture,
    read_settings,
)
from tests.support.cases import cases_of

cases = cases_of(__file__)


def chat(*turns: str, **more: Any) -> bytes:
    roles = ("user", "assistant")
    messages = [{"role": roles[at % 2], "content": turn} for at, turn in enumerate(turns)]
    return json.dumps({"messages": messages, **more}).encode()


def test_all_turns_of_a_conversation_are_chosen_or_none() -> None:
    chosen = [is_chosen(chat(f"question {number}"), 0.3) for number in range(2000)]

    assert 500 < sum(chosen) < 700
    for number, one in enumerate(chosen[:200]):
        system = {"role": "system", "content": f"it is {number} o'clock"}
        later = json.loads(chat(f"question {number}", "an answer", "and then?", stream=True))
        later["messages"].insert(0, system)
        assert is_chosen(json.dumps(later).encode(), 0.3) is one
    assert [is_chosen(b"\xff", share) for share in (0.0, 1.0)] == [False, True]


@cases("first_turns")
def test_bodies_of_one_beginning_are_of_one_conversation(bodies: list[str], same: bool) -> None:
    shares = [share / 512 for share in range(512)]
    drawn = [[is_chosen(body.encode(), share) for share in shares] for body in bodies]
    assert (drawn[0] == drawn[1]) is same


@cases("requests")
def test_only_requests_for_answers_are_captured(
    method: str, path: str, headers: dict[str, str], captured: bool
) -> None:
    found = {name.encode(): value.encode() for name, value in headers.items()}
    assert is_captured(method.encode(), path.encode(), found) is captured


@pytest.mark.parametrize("share", [0.0, 0.1, 1.0])
def test_settings_are_read_as_they_were_written(share: float) -> None:
    settings = CaptureSettings(name="a/b", share=share, command="/packager-redact", max_bytes=9)
    assert read_settings(settings.text()) == settings
    assert read_settings("off") is None


@pytest.mark.parametrize("text", ["1", '{"share": 2}', '{"bucket": "x"}', "{", '{"share": "x"}'])
def test_settings_that_say_nothing_are_refused(text: str) -> None:
    with pytest.raises(ValueError):
        read_settings(text)


def test_a_row_holds_texts_and_no_secret(tmp_path: Path) -> None:
    capture = open_capture(CaptureSettings(directory=str(tmp_path), name="tiny/all", share=1.0))
    kept = capture.begin(chat("write to jo@example.org"), "application/json")
    assert kept is not None
    kept.take(b'data: {"choices": [{"index": 0, "delta": {"content": "don')
    kept.take(b'e"}, "finish_reason": "stop"}]}\n\ndata: [DONE]\n\n')
    kept.end("1", "text/event-stream; charset=utf-8")
    capture.recorder.close()

    (file,) = complete_files(tmp_path)
    row = json.loads(file.read_text())
    assert json.loads(row["captureData"]["endpointInput"]["data"]) == {
        "messages": [{"role": "user", "content": "write to [EMAIL]"}]
    }
    answer = json.loads(row["captureData"]["endpointOutput"]["data"])
    assert answer["choices"][0]["message"] == {"role": "assistant", "content": "done"}
    assert file.relative_to(tmp_path).parts[:2] == ("tiny", "all")
    lines = metric_lines({**capture.recorder.counts(), "dropped-full": 2})
    assert "packager_capture_rows_total 1\n" in lines
    assert 'packager_capture_dropped_total{reason="full"} 2\n' in lines


def test_exchanges_that_run_hold_no_more_than_the_limit(tmp_path: Path) -> None:
    capture = open_capture(CaptureSettings(directory=str(tmp_path), share=1.0))
    recorder = Recorder(max_bytes=100)
    object.__setattr__(capture, "recorder", recorder)

    def begun() -> Kept:
        kept = capture.begin(b"x" * 40, "text/plain")
        assert kept is not None
        return kept

    first, second, third = begun(), begun(), begun()
    assert not third.end("3", "text/plain")
    second.drop()  # a refused request
    first.take(b"y" * 50)
    assert first.end("1", "text/plain")
    recorder.close()
    assert recorder.counts()["dropped-queue-full"] == 1
    assert recorder.hold(100)

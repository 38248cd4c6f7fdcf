"""What people and programs see of a long push, and that it never stands in the way."""

from __future__ import annotations

import fcntl
import json
import os
import re
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from packager.cli.displays import HEARTBEAT_S, Dated, JsonLines, Lines, StepNews, clock, total_line
from packager.cli.meter import Meter
from packager.cli.progress import Ticker, shown_progress
from packager.core.events import Event, ImageEvent, LayerEvent, LayerState, StageEstimate, StepEvent
from tests.commandline import Packager

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = json.loads((ROOT / "docs/progress.schema.json").read_text())
MODEL = str(ROOT / "examples/tiny-llama")
BUILD = ("build", "--model", MODEL, "--instance", "local", "--base", "scratch")
GB = 10**9
DIGEST = "sha256:" + "a1" * 32


def layer(number: int, done: int, state: LayerState = "streaming", digest: str = "") -> LayerEvent:
    label = f"packager: weights model-{number} (10.0 GB)"
    return LayerEvent(
        layer=number, label=label, size=10 * GB, done=done, state=state, digest=digest
    )


class Show:
    """A display and a meter on a clock that the test moves."""

    def __init__(self, make: Callable[[Callable[[str], None]], Lines | JsonLines]) -> None:
        self.text = ""
        self.display = make(self._write)
        self.meter = Meter(0.0)

    def _write(self, text: str) -> None:
        self.text += text

    def tell(self, now: float, *events: Event) -> str:
        """Give events at `now`, and what the display said of them."""
        news: list[Dated] = []
        for event in events:
            seconds = self.meter.take(event, now)
            if isinstance(event, StepEvent) and event.state != "running":
                news.append((now, StepNews(event=event, seconds=seconds)))
            elif isinstance(event, ImageEvent):
                news.append((now, event))
            elif isinstance(event, LayerEvent) and event.state not in ("streaming", "hashing"):
                news.append((now, self.meter.layer(event.layer, now)))
        self.text = ""
        self.display.show(news, self.meter.snapshot(now))
        return self.text


def test_a_log_has_a_line_a_layer_and_a_heartbeat() -> None:
    show = Show(Lines)

    assert show.tell(0, ImageEvent(layers=(10 * GB,) * 3)) == "image: 3 layers, 30.0 GB\n"
    assert show.tell(1, layer(0, 10 * GB, "mounted")) == (
        "layer 1 of 3: weights model-0, 10.0 GB mounted, not sent\n"
    )
    assert show.tell(10, layer(1, 2 * GB)) == ""
    assert show.tell(HEARTBEAT_S, layer(1, 3 * GB)) == (
        "43 %, 13.0 GB of 30.0 GB, 50.0 MB/s, 5:40 left\n"
    )
    assert show.tell(HEARTBEAT_S + 1, layer(1, 3 * GB + 1)) == ""


def test_a_log_tells_steps_that_take_their_time() -> None:
    show = Show(Lines)
    started = StepEvent(step="model", detail="org/name", state="started")
    finished = StepEvent(step="model", detail="org/name", state="finished")

    said = [show.tell(0, started), show.tell(HEARTBEAT_S, started), show.tell(42, finished)]

    assert said == ["", "model: org/name, 0:30 so far\n", "model: org/name, 42.0 s\n"]


def test_a_long_download_has_a_rate_and_its_time_left() -> None:
    show = Show(Lines)
    show.tell(0, StepEvent(step="model", detail="org/name", state="started"))
    for now in range(1, 40):
        said = StepEvent(
            step="model", detail="org/name", state="running", done=now * GB, size=140 * GB
        )
        if text := show.tell(now, said):
            break

    assert text == (
        "model: org/name, 0:30 so far, 21 %, 30.0 GB of 140.0 GB, 1.0 GB/s, 1:50 left\n"
    )


LAYERS = StageEstimate(stage="quantizing", seconds=300.0, units=(0.0, *[1.0] * 10))
QUANTIZING = StepEvent(step="quantize", detail="tool", state="started", stages=(LAYERS,))


def quantized(layers: int) -> StepEvent:
    return StepEvent(
        step="quantize",
        detail=f"quantizing, {layers + 1} of 11",
        state="running",
        stage="quantizing",
        units_done=layers + 1,
        units=11,
    )


def test_a_log_announces_a_long_step_and_tells_its_time_left() -> None:
    show = Show(Lines)
    assert show.tell(0, QUANTIZING) == "quantize: tool, about 5:00 (estimated)\n"
    show.tell(0, quantized(0))
    show.tell(20, quantized(1))

    assert show.tell(40, quantized(2)) == (
        "quantize: quantizing, 3 of 11, 0:40 so far, about 2:40 left\n"
    )
    short = StepEvent(
        step="write", detail="tool", state="started", stages=(StageEstimate(stage="s", seconds=9),)
    )
    assert show.tell(41, short) == ""


def test_json_tells_the_estimate_of_a_step_and_then_its_time_left() -> None:
    show = Show(JsonLines)
    [started, *_] = show.tell(0, QUANTIZING).splitlines()
    show.tell(0, quantized(0))
    show.tell(20, quantized(1))
    said = show.tell(40, quantized(2))

    events = [json.loads(started), json.loads(said.splitlines()[-1])]
    for event in events:
        jsonschema.validate(event, SCHEMA)
    assert [event["eta_s"] for event in events] == [300.0, 160.0]


@pytest.mark.parametrize(
    ("seconds", "shown"), [(0.4, "0:00"), (98, "1:38"), (7390, "2:03:10")], ids=str
)
def test_durations_read_as_on_a_clock(seconds: float, shown: str) -> None:
    assert clock(seconds) == shown


def test_json_events_follow_the_schema_and_are_not_too_many() -> None:
    show = Show(JsonLines)
    text = show.tell(0, StepEvent(step="base", detail="b", state="started"))
    text += show.tell(1, StepEvent(step="base", detail="b", state="finished"))
    text += show.tell(1, ImageEvent(layers=(10 * GB,) * 4))
    text += show.tell(2, layer(0, 0, "known", DIGEST), layer(1, 0, "mounted", DIGEST))
    text += show.tell(5, *(layer(2, step * GB) for step in range(6)), layer(3, 0, "hashing"))
    text += show.tell(8, layer(2, 0, "again"), layer(3, 10 * GB, "written", DIGEST))

    events = [json.loads(line) for line in text.splitlines()]

    for event in events:
        jsonschema.validate(event, SCHEMA)
    streaming = [event for event in events if event.get("state") == "streaming"]
    assert [event["bytes"] for event in streaming] == [5 * GB]
    assert events[-1] == {
        "event": "total",
        "layers": 4,
        "layers_done": 3,
        "bytes": 30 * GB,
        "total": 40 * GB,
        "rate": pytest.approx(15 * GB / 7, rel=0.01),
        "eta_s": pytest.approx(4.7, abs=0.1),
        "known": {"layers": 1, "bytes": 10 * GB},
        "mounted": {"layers": 1, "bytes": 10 * GB},
        "streamed": {"layers": 1, "bytes": 10 * GB},
        "elapsed_s": 8.0,
    }


def test_json_tells_of_a_step_under_way_and_its_bytes() -> None:
    show = Show(JsonLines)
    show.tell(0, StepEvent(step="model", detail="org/name", state="started"))

    said = show.tell(
        4, StepEvent(step="model", detail="org/name", state="running", done=GB, size=2 * GB)
    )

    last = json.loads(said.splitlines()[-1])
    jsonschema.validate(last, SCHEMA)
    assert (last["state"], last["bytes"], last["total"], last["seconds"]) == (
        "running",
        GB,
        2 * GB,
        4.0,
    )


def test_a_command_tells_programs_how_it_goes(packager: Packager) -> None:
    done = packager(*BUILD, "--output", "oci:out", "--progress", "json", "--format", "json")

    events = [json.loads(line) for line in done.err.splitlines()]
    for event in events:
        jsonschema.validate(event, SCHEMA)
    assert {"step", "image", "layer", "total"} == {event["event"] for event in events}
    assert events[-1]["layers_done"] == events[-1]["layers"] == 5
    assert json.loads(done.out)["digest"].startswith("sha256:")


@pytest.mark.parametrize("options", [("--quiet",), ("--progress", "none", "--format", "json")])
def test_nothing_is_shown_when_nothing_is_asked_for(
    packager: Packager, options: tuple[str, ...]
) -> None:
    assert packager(*BUILD, "--output", "oci:out", *options).err == ""


def test_copies_show_progress_too(packager: Packager) -> None:
    packager(*BUILD, "--output", "oci:one", "--quiet")

    done = packager("copy", "oci:one", "oci:two", "--progress", "plain")

    assert "image: 5 layers, 8.6 MB" in done.err
    assert "layer 5 of 5:" in done.err


def in_terminal(script: str, *arguments: str, term: str = "xterm") -> tuple[str, str, int]:
    """Run Python with a terminal of 100 columns as stderr; give stderr, stdout, status."""
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-c", script, *arguments],
        stderr=theirs,
        stdout=subprocess.PIPE,
        env={**os.environ, "TERM": term},
        text=True,
    )
    os.close(theirs)
    drawn = b""
    while True:
        try:
            piece = os.read(ours, 65536)
        except OSError:  # how Linux says that the other end is closed
            break
        if not piece:
            break
        drawn += piece
    os.close(ours)
    stdout, _ = process.communicate(timeout=60)
    return drawn.decode(), stdout, process.returncode


PUSH = """
import sys, time
from packager.cli.progress import shown_progress
from packager.core.events import ImageEvent, LayerEvent, StepEvent
GB = 10**9
def layer(number, done, state="streaming"):
    return LayerEvent(layer=number, label=f"packager: weights model-{number} (10.0 GB)",
                      size=10 * GB, done=done, state=state)
with shown_progress("auto") as tell:
    tell(StepEvent(step="base", detail="registry/base:1", state="started"))
    time.sleep(1.2)
    tell(StepEvent(step="base", detail="registry/base:1", state="finished"))
    tell(ImageEvent(layers=(10 * GB,) * 3))
    tell(layer(0, 0, "mounted"))
    for tick in range(1, 9):
        tell(layer(1, tick * GB // 2)); tell(layer(2, tick * GB))
        time.sleep(0.2)
    print("warning: mind the gap", file=sys.stderr)
    tell(layer(2, 10 * GB, "written"))
    time.sleep(1.5)
print("the result")
"""


def test_a_terminal_shows_bars_rate_time_left_and_counts() -> None:
    drawn, stdout, status = in_terminal(PUSH)

    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", drawn)
    assert (stdout, status) == ("the result\n", 0)
    for said in (
        "base registry/base:1",
        "weights model-1",
        "of 10.0 GB",
        "GB/s",
        "left",
        "1 of 3 layers: 1 mounted (10.0 GB)",
        "2 of 3 layers: 1 mounted (10.0 GB), 1 streamed (10.0 GB)",
        "warning: mind the gap",
    ):
        assert said in plain, said
    assert max(len(line) for line in re.split(r"[\r\n]+", plain)) <= 100
    assert drawn.endswith("\x1b[2K")  # the bars are gone


def test_a_dumb_terminal_gets_lines() -> None:
    drawn, _, _ = in_terminal(PUSH, term="dumb")

    assert "\x1b" not in drawn
    assert "layer 1 of 3: weights model-0, 10.0 GB mounted, not sent" in drawn


class Broken:
    """A display that fails at once."""

    interval_s = 0.01

    def show(self, news: Any, now: Any) -> None:
        raise OSError("no such terminal")

    def close(self) -> None:
        raise OSError("no such terminal")


def test_a_broken_display_is_given_up() -> None:
    ticker = Ticker(Broken)
    ticker.receive(ImageEvent(layers=(1,)))
    time.sleep(0.05)
    ticker.receive(layer(0, 1))
    ticker.close()


def test_a_blocked_display_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("packager.cli.progress.LAST_WORDS_S", 0.2)
    for_ever = threading.Event()

    class Blocked(Broken):
        def show(self, news: Any, now: Any) -> None:
            for_ever.wait(120)

    ticker = Ticker(Blocked)
    time.sleep(0.05)
    started = time.monotonic()
    for count in range(10_000):
        ticker.receive(layer(0, count))
    ticker.close()

    assert time.monotonic() - started < 60
    for_ever.set()


@pytest.mark.parametrize("mode", ["plain", "json", "rich"])
def test_a_reader_that_goes_away_does_not_end_the_build(mode: str, tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "packager", *BUILD, "--output", f"oci:{tmp_path / 'out'}"]
    done = subprocess.run(
        [*command, "--progress", mode, "--format", "json"],
        stdout=subprocess.PIPE,
        stderr=writing,
        timeout=120,
    )
    os.close(writing)

    assert done.returncode == 0
    assert json.loads(done.stdout)["digest"].startswith("sha256:")


def test_events_of_many_threads_add_up(capsys: pytest.CaptureFixture[str]) -> None:
    with shown_progress("json") as tell:
        tell(ImageEvent(layers=(10 * GB,) * 8))

        def work(number: int) -> None:
            for step in range(200):
                tell(layer(number, step))
            tell(layer(number, 10 * GB, "written", DIGEST))

        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    last = json.loads(capsys.readouterr().err.splitlines()[-1])
    assert (last["event"], last["layers_done"], last["bytes"]) == ("total", 8, 80 * GB)


def test_a_total_without_a_rate_says_how_much() -> None:
    meter = Meter(0.0)
    meter.take(ImageEvent(layers=(10 * GB,)), 0.0)

    assert total_line(meter.snapshot(0.0)) == "0 %, 0 B of 10.0 GB"

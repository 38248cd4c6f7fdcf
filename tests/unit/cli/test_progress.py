"""What people and programs see of a long push, and that it never stands in the way."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable

import jsonschema
import pytest

from packager.cli.displays import (
    HEARTBEAT_S,
    Dated,
    JsonLines,
    LineDisplay,
    StepNews,
    clock,
    total_line,
)
from packager.cli.meter import Meter
from packager.cli.progress import shown_progress
from packager.core.events import (
    Event,
    ImageEvent,
    LayerEvent,
    LayerState,
    StageEstimate,
    StagesEvent,
    StepEvent,
    StepState,
)
from tests.support.cases import read_tables
from tests.support.places import ROOT

TABLES = read_tables(__file__)

SCHEMA = json.loads((ROOT / "docs/progress.schema.json").read_text())
GB = 10**9
DIGEST = "sha256:" + "a1" * 32


def layer(number: int, done: int, state: LayerState = "streaming", digest: str = "") -> LayerEvent:
    label = f"packager: weights model-{number} (10.0 GB)"
    return LayerEvent(
        layer=number, label=label, size=10 * GB, done=done, state=state, digest=digest
    )


def model(state: StepState, **more: int) -> StepEvent:
    return StepEvent(step="model", detail="org/name", state=state, **more)  # type: ignore[arg-type]


class Show:
    """A display and a meter on a clock that the test moves."""

    def __init__(self, make: Callable[[Callable[[str], None]], LineDisplay | JsonLines]) -> None:
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
    show = Show(LineDisplay)

    assert show.tell(0, ImageEvent(layers=(10 * GB,) * 3)) == "image: 3 layers, 30.0 GB\n"
    assert show.tell(1, layer(0, 10 * GB, "mounted")) == (
        "layer 1 of 3: weights model-0, 10.0 GB mounted, not sent\n"
    )
    assert show.tell(10, layer(1, 2 * GB)) == ""
    assert show.tell(HEARTBEAT_S, layer(1, 3 * GB)) == (
        "43 %, 13.0 GB of 30.0 GB, 50.0 MB/s, 5:40 left\n"
    )
    assert show.tell(HEARTBEAT_S + 1, layer(1, 3 * GB + 1)) == ""


def test_a_layer_that_is_known_is_not_said_to_stay() -> None:
    """An engine that lacks it fetches it when the image is published."""
    show = Show(LineDisplay)

    assert show.tell(0.0, ImageEvent(layers=(10 * GB,))) == "image: 1 layer, 10.0 GB\n"
    assert show.tell(0.1, layer(0, 10 * GB, "known")) == (
        "layer 1 of 1: weights model-0, 10.0 GB known beforehand\n"
    )


def test_a_log_tells_steps_that_take_their_time() -> None:
    show = Show(LineDisplay)
    started = model("started")
    finished = model("finished")

    said = [show.tell(0, started), show.tell(HEARTBEAT_S, started), show.tell(42, finished)]

    assert said == ["", "model: org/name, 0:30 so far\n", "model: org/name, 42.0 s\n"]


def test_a_long_download_has_a_rate_and_its_time_left() -> None:
    show = Show(LineDisplay)
    show.tell(0, model("started"))
    for now in range(1, 40):
        said = model("running", done=now * GB, size=140 * GB)
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
    show = Show(LineDisplay)
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
    assert events[-1].pop("rate") == pytest.approx(15 * GB / 7, rel=0.01)
    assert events[-1].pop("eta_s") == pytest.approx(4.7, abs=0.1)
    assert events[-1] == TABLES["total"]


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


def test_a_log_tells_that_a_stage_began_unless_it_ends_at_once() -> None:
    show = Show(LineDisplay)
    show.tell(0, StagesEvent(stages=("model", "plan", "quantize")))

    said = [
        show.tell(0, model("started")),
        show.tell(0.5, model("finished")),
        show.tell(0.5, StepEvent(step="plan", state="started")),
        show.tell(1.5),
        show.tell(2.5),
        show.tell(3, StepEvent(step="plan", state="finished")),
        show.tell(3, QUANTIZING),
        show.tell(5),
    ]

    assert said == TABLES["printed"]

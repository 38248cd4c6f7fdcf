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
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from packager.cli.ticker import Ticker
from packager.core.events import ImageEvent
from tests.support.cases import read_tables
from tests.support.commandline import Packager
from tests.support.processes import run_python
from tests.support.screens import Screen
from tests.unit.cli.test_progress import ROOT, SCHEMA, layer

MODEL = str(ROOT / "examples/tiny-llama")
BUILD = ("build", "--model", MODEL, "--instance", "local", "--base", "scratch")


def test_a_command_tells_programs_how_it_goes(packager: Packager) -> None:
    done = packager(*BUILD, "--output", "oci:out", "--progress", "json", "--format", "json")

    events = [json.loads(line) for line in done.err.splitlines()]
    for event in events:
        jsonschema.validate(event, SCHEMA)
    assert {"step", "image", "layer", "total"} == {event["event"] for event in events}
    assert events[-1]["layers_done"] == events[-1]["layers"] == 5
    assert json.loads(done.out)["digest"].startswith("sha256:")


def test_a_log_has_a_line_for_each_stage_in_order(packager: Packager) -> None:
    done = packager(*BUILD, "--output", "oci:out", "--progress", "plain")

    ended = re.findall(r"^(\w+)(?:: .*)?, \d+\.\d s$", done.err, flags=re.MULTILINE)
    assert ended == ["model", "plan", "base", "layers", "publish"]


@pytest.mark.parametrize("options", [("--quiet",), ("--progress", "none", "--format", "json")])
def test_nothing_is_shown_unasked(packager: Packager, options: tuple[str, ...]) -> None:
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
import os, sys, threading, time
from packager.cli.progress import shown_progress
from packager.cli.ticker import Ticker
from packager.core.events import ImageEvent, LayerEvent, StepEvent
frames = threading.Semaphore(0)
def draw(ticker, display, plain=Ticker._show):
    plain(ticker, display)
    frames.release()
Ticker._show = draw
def shown(seconds):
    time.sleep(seconds)
    if os.environ["TERM"] != "dumb":  # where lines come every ten seconds
        while frames.acquire(blocking=False):
            pass
        for _ in range(2):  # one may have been under way
            assert frames.acquire(timeout=120)
GB = 10**9
def layer(number, done, state="streaming"):
    return LayerEvent(layer=number, label=f"packager: weights model-{number} (10.0 GB)",
                      size=10 * GB, done=done, state=state)
with shown_progress("auto") as tell:
    tell(StepEvent(step="base", detail="registry/base:1", state="started"))
    shown(1.2)
    tell(StepEvent(step="base", detail="registry/base:1", state="finished"))
    tell(ImageEvent(layers=(10 * GB,) * 3))
    tell(layer(0, 0, "mounted"))
    for tick in range(1, 9):
        tell(layer(1, tick * GB // 2)); tell(layer(2, tick * GB))
        time.sleep(0.2)
    shown(0)
    print("warning: mind the gap", file=sys.stderr)
    tell(layer(2, 10 * GB, "written"))
    shown(1.5)
print("the result")
"""


def test_a_terminal_shows_bars_rate_time_left_and_counts() -> None:
    drawn, stdout, status = in_terminal(PUSH)

    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", drawn)
    assert (stdout, status) == ("the result\n", 0)
    for said in read_tables(__file__)["shown"]:
        assert said in plain, said
    assert max(len(line) for line in re.split(r"[\r\n]+", plain)) <= 100
    assert after(drawn) == "warning: mind the gap\n"  # the list is gone


INTERRUPTED = """
import sys, threading
from packager.cli.bars import Bars
from packager.cli.progress import shown_progress
from packager.core.events import StagesEvent, StepEvent
drawn = threading.Event()
def draw(bars, news, now, plain=Bars.show):
    plain(bars, news, now)
    if any(stage.detail == "org/name" for stage in now.stages):
        drawn.set()
Bars.show = draw
try:
    with shown_progress("rich") as tell:
        tell(StagesEvent(stages=("model", "plan")))
        tell(StepEvent(step="model", state="started", detail="org/name"))
        assert drawn.wait(120)
        raise eval(sys.argv[1])
except (KeyboardInterrupt, OSError):
    print("interrupted", file=sys.stderr)
"""


@pytest.mark.parametrize("error", ["KeyboardInterrupt", "OSError('gone')"])
def test_whatever_ends_a_command_the_list_is_gone_before_the_message(error: str) -> None:
    drawn, _, status = in_terminal(INTERRUPTED, error)

    assert "org/name" in drawn
    assert (after(drawn), status) == ("interrupted\n", 0)


def after(drawn: str) -> str:
    """Return all that is left on the terminal."""
    screen = Screen(100, 30)
    screen.feed(drawn)
    return screen.everything()


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
    monkeypatch.setattr("packager.cli.ticker.LAST_WORDS_S", 0.2)
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
    output = ("--output", f"oci:{tmp_path / 'out'}", "--progress", mode, "--format", "json")
    done = run_python("-m", "packager", *BUILD, *output, stderr=writing)
    os.close(writing)

    assert json.loads(done.stdout)["digest"].startswith("sha256:")

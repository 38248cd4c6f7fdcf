"""The thread that shows progress, and how displays write to stderr.

Receiving an event costs a lock and an addition; drawing is done by a thread of its own,
several times a second at most, which nobody waits for longer than a moment.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TextIO, cast

from packager.cli.displays import Dated, Display, JsonLines, LineDisplay, News, StepNews
from packager.cli.meter import Meter
from packager.cli.terminal import write_above
from packager.core.events import Event, ImageEvent, LayerEvent, StepEvent
from packager.core.text import hide_secrets

LAST_WORDS_S = 2.0  # how long a blocked terminal may hold up the end


class Ticker:
    """Receiver of events from any thread, which updates a display from one thread."""

    def __init__(
        self, display: Callable[[], Display], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._display: Display | None = None
        with suppress(Exception):  # a broken display never fails a build
            self._display = display()
        self._clock = clock
        self._lock = threading.Lock()
        self._meter = Meter(clock())
        self._started = clock()
        self._news: list[Dated] = []
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="progress", daemon=True)
        self._thread.start()

    def receive(self, event: Event) -> None:
        """Add an event."""
        with self._lock:
            now = self._clock()  # read while locked, so that the meter's time never decreases
            seconds = self._meter.take(event, now)
            match event:
                case LayerEvent(state="streaming" | "hashing") | StepEvent(state="running"):
                    return  # the next snapshot includes it
                case LayerEvent(layer=number):
                    news: News = self._meter.layer(number, now)
                case StepEvent():
                    news = StepNews(event=event, seconds=seconds)
                case ImageEvent():
                    news = event
                case _:
                    return
            self._news.append((now - self._started, news))

    def close(self) -> None:
        """Show the last events, and restore the terminal."""
        self._end.set()
        self._thread.join(LAST_WORDS_S)

    def _run(self) -> None:
        with suppress(Exception):  # a broken display never fails a build
            display = self._display
            if display is None:
                return
            try:
                while not self._end.wait(display.interval_s):
                    self._show(display)
                self._show(display)
            finally:
                display.close()

    def _show(self, display: Display) -> None:
        with self._lock:
            news, self._news = self._news, []
            now = self._meter.snapshot(self._clock())
        display.show(news, now)


def display_of(mode: str) -> Callable[[], Display]:
    """Return what makes the display of a mode: `rich`, `plain` or `json`."""
    stream = sys.stderr
    if mode == "rich":
        return lambda: _bars(stream)
    write = _writer(stream)
    return (lambda: JsonLines(write)) if mode == "json" else (lambda: LineDisplay(write))


def _bars(stream: TextIO) -> Display:
    """Return the display for people; from now on others write above it."""
    from packager.cli.bars import bars_on
    from packager.cli.live import AboveArea

    forgiving = cast("TextIO", _Forgiving(stream))
    bars, area = bars_on(forgiving)
    sys.stderr = cast("TextIO", AboveArea(forgiving, area))
    write_above(area.above)
    return bars


def _writer(stream: TextIO) -> Callable[[str], None]:
    forgiving = _Forgiving(stream)

    def write(text: str) -> None:
        forgiving.write(text)
        forgiving.flush()

    return write


class _Forgiving:
    """A stream that ignores errors once its reader has closed it."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        with suppress(OSError, ValueError):
            self._stream.write(hide_secrets(text))
        return len(text)

    def flush(self) -> None:
        with suppress(OSError, ValueError):
            self._stream.flush()

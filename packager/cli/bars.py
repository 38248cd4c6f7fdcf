"""The display for people at a terminal: a bar a layer under way, one for all, and counts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Column, Table
from rich.text import Text

from packager.cli.displays import (
    Dated,
    StepNews,
    clock,
    count_line,
    is_worth_saying,
    label_of,
    percent,
)
from packager.cli.meter import Snapshot
from packager.core.text import escape
from packager.core.units import decimal

MOST_LAYERS = 8


class Bars:
    """Redraws itself; goes away at the end, when the summary says what there is to know."""

    interval_s = 0.2

    def __init__(self, stream: TextIO) -> None:
        self._console = Console(file=stream, highlight=False)
        self._live = Live(
            console=self._console, auto_refresh=False, transient=True, redirect_stdout=False
        )
        self._live.start()

    def show(self, news: Sequence[Dated], now: Snapshot) -> None:
        """Leave a line for each step that is over, and draw what is under way."""
        for _, item in news:
            if isinstance(item, StepNews) and is_worth_saying(item):
                line = f"{item.event.step:<9}{item.event.detail}  {item.seconds:.1f} s"
                self._console.print(Text(escape(line)), overflow="ellipsis", no_wrap=True)
        self._live.update(_drawn(now), refresh=True)

    def close(self) -> None:
        """Take the bars away."""
        self._live.stop()


def _drawn(now: Snapshot) -> RenderableType:
    table = Table.grid(
        Column(ratio=3, no_wrap=True, overflow="ellipsis"),
        Column(ratio=2, min_width=10),
        Column(justify="right", no_wrap=True),
        Column(justify="right", no_wrap=True),
        Column(justify="right", no_wrap=True),
        padding=(0, 1),
        expand=True,
    )
    for step in now.steps:
        table.add_row(
            Text(escape(f"{step.step} {step.detail}")),
            ProgressBar(step.size or None, step.done, pulse=not step.size),
            _amount(step.done, step.size) if step.size else Text(""),
            _rate(step.rate),
            _left(step.eta_s) if step.eta_s else Text(clock(step.seconds)),
        )
    for layer in now.active[:MOST_LAYERS]:
        label = escape(label_of(layer))
        table.add_row(
            Text(f"{label} ({layer.state})" if layer.state in ("hashing", "again") else label),
            ProgressBar(layer.size, layer.done),
            _amount(layer.done, layer.size),
            _rate(layer.rate),
            _left(layer.eta_s),
        )
    if not now.layers:
        return table
    table.add_row(
        Text(f"all {percent(now.done, now.size)}", style="bold"),
        ProgressBar(now.size, now.done),
        _amount(now.done, now.size),
        _rate(now.rate),
        _left(now.eta_s),
    )
    more = len(now.active) - MOST_LAYERS
    counts = count_line(now) + (f"; {more} more under way" if more > 0 else "")
    return Group(table, Text(counts, style="dim", no_wrap=True, overflow="ellipsis"))


def _amount(done: int, size: int) -> Text:
    return Text(f"{decimal(done)} of {decimal(size)}")


def _rate(rate: float | None) -> Text:
    return Text(f"{decimal(rate)}/s" if rate else "")


def _left(eta_s: float | None) -> Text:
    return Text(f"{clock(eta_s)} left" if eta_s else "")

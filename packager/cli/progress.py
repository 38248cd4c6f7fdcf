"""How layer events look: bars on a terminal, a line a layer elsewhere."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import click

from packager.core.events import EventSink, LayerEvent, ignore
from packager.core.units import decimal

_SAID = {"known": "known, not sent", "written": "written", "again": "broke off, sending again"}


@contextmanager
def layer_progress(*, enabled: bool) -> Iterator[EventSink]:
    """Give a receiver of layer events that draws on stderr."""
    if not enabled:
        yield ignore
    elif sys.stderr.isatty():
        yield from _bars()
    else:
        yield _say_line


def _say_line(event: LayerEvent) -> None:
    if event.state in _SAID:
        said = f"{event.label or 'layer'}: {decimal(event.size)} {_SAID[event.state]}"
        click.echo(said, err=True)


def _bars() -> Iterator[EventSink]:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TaskID,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    columns = (
        TextColumn("{task.description}", table_column=None),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    tasks: dict[int, TaskID] = {}
    lock = threading.Lock()
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:

        def draw(event: LayerEvent) -> None:
            with lock:
                if event.layer not in tasks:
                    label = event.label.removeprefix("packager: ") or "base layer"
                    tasks[event.layer] = progress.add_task(label, total=event.size)
                done = event.size if event.state in ("known", "written") else event.done
                progress.update(tasks[event.layer], completed=done)

        yield draw

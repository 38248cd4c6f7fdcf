"""Benchmarks over time: one a line, appended as they are measured, and drawn together."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from packager.addons.bench.merge import Named
from packager.addons.bench.names import load_words
from packager.addons.bench.tables import OUTPUT, TPOT, TTFT, value
from packager.core.bench import BenchLoad, BenchReport
from packager.core.errors import UsageError
from packager.core.files.atomic import check_place, explain_disk_errors
from packager.core.reports.report import Chart, Column, Dot, Key, Row, Section, Series, Table

SUFFIX = ".jsonl"
_FIGURES = (
    (OUTPUT, "avg", "tokens/s out"),
    (TTFT, "p50", "first token, ms"),
    (TPOT, "p50", "per token, ms"),
)


def append_report(place: Path, report: BenchReport) -> None:
    """Add a benchmark to a history, in one write; what is there stays as it is."""
    line = report.model_dump_json(exclude_none=True).encode() + b"\n"
    with explain_disk_errors(place):
        place.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(place, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            _end_line(place, descriptor)
            os.write(descriptor, line)
        finally:
            os.close(descriptor)


def check_history(place: Path | None) -> Path | None:
    """Return the file of a history; raise `UsageError` for a name that `report` would not read."""
    if place is not None and place.suffix != SUFFIX:
        raise UsageError(
            f"--history {str(place)!r} is not a file of JSON lines",
            hint=f"name it with {SUFFIX} at its end",
        )
    if place is not None:
        check_place(place)
    return place


def _end_line(place: Path, descriptor: int) -> None:
    """End a line that was cut off by a full disk or a kill."""
    size = place.stat().st_size
    with place.open("rb") as stream:
        stream.seek(max(0, size - 1))
        if size and stream.read(1) != b"\n":
            os.write(descriptor, b"\n")


def history_sections(runs: Sequence[Named]) -> tuple[Section, ...]:
    """Return a table and a chart of benchmarks in their order; nothing for fewer than two."""
    if len(runs) < 2:
        return ()
    rows = [
        Row((one.report.measured, variant.name, load_words(load), *_cells(load)))
        for one in runs
        for variant in one.report.variants
        for load in variant.loads
    ]
    table = Table(
        columns=(
            *(Column(name) for name in ("measured", "server", "load")),
            *(Column(name, is_number=True) for _, _, name in _FIGURES),
        ),
        rows=tuple(rows),
        caption="every measurement of the files, the oldest first",
        is_sorted=True,
    )
    chart = _chart(runs)
    return (
        Section(
            key="history",
            title="History",
            heading="History",
            short="History",
            parts=(*((chart,) if chart else ()), table),
        ),
    )


def _cells(load: BenchLoad) -> tuple[str, ...]:
    found = [value(load, tag, statistic) for tag, statistic, _ in _FIGURES]
    return tuple("–" if one is None else f"{one:,.4g}" for one in found)


def _chart(runs: Sequence[Named]) -> Chart | None:
    """Draw tokens a second of each server and load, by the number of the run."""
    lines: dict[str, list[Dot]] = {}
    for number, one in enumerate(runs, 1):
        for variant in one.report.variants:
            for load in variant.loads:
                if speed := value(load, OUTPUT):
                    title = f"{one.report.measured}: {speed:,.4g} tokens/s"
                    name = f"{variant.name}, {load_words(load)}"
                    lines.setdefault(name, []).append(Dot(x=number, y=speed, title=title))
    drawn = {name: dots for name, dots in lines.items() if len(dots) > 1}
    if not drawn:
        return None
    return Chart(
        series=tuple(
            Series(number=number, name=name, dots=tuple(dots))
            for number, (name, dots) in enumerate(drawn.items())
        ),
        x_label="measurement",
        y_label="tokens per second, all together",
        name="Tokens per second of each server and load, by measurement",
        table="the table of the history",
        x_steps=tuple(float(number) for number in range(1, len(runs) + 1))
        if len(runs) < 20
        else (),
        linear_x=True,
        linear_y=True,
        keys=tuple(Key(number=number, name=name, short=name) for number, name in enumerate(drawn)),
    )

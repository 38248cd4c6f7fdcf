"""What was measured of an image, as sections of `packager inspect`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from packager.cli.plugins.rows import Row
from packager.core.reports.report import Lines, Pair, Pairs, Section
from packager.core.units import counted

if TYPE_CHECKING:
    from packager.cli.plugins.tables import SectionRow
    from packager.core.record import BuildRecord


def _loads(record: BuildRecord) -> Section | None:
    from packager.addons.bench.report import brief_lines, request_words

    if (measured := record.bench) is None:
        return None
    text = f"{measured.measured}, {request_words(measured.workload)}"
    lines = tuple(f"  {line}" for line in brief_lines(measured))
    return Section(parts=(Pairs((Pair("measured", text),)), Lines(lines, "")))


def _starts(record: BuildRecord) -> Section | None:
    from packager.addons.bench.startup_text import brief_parts

    if (starts := record.starts) is None:
        return None
    text = f"{starts.measured}, {counted(starts.rounds, 'round')}"
    return Section(parts=(Pairs((Pair("started", text),)), *brief_parts(starts)))


LOADS: SectionRow = Row("what was measured under load", _loads)
STARTS: SectionRow = Row("how long cold starts took", _starts)

"""Lines of `packager inspect` about what was measured of an image: rows of `packager.sections`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from packager.cli.plugins.rows import Row
from packager.core.units import counted

if TYPE_CHECKING:
    from packager.cli.plugins.tables import SectionRow
    from packager.core.record import BuildRecord


def _loads(record: BuildRecord) -> Iterator[str]:
    from packager.addons.bench.report import brief_lines, request_words

    if (measured := record.bench) is not None:
        yield f"measured   {measured.measured}, {request_words(measured.workload)}"
        yield from (f"  {line}" for line in brief_lines(measured))


def _starts(record: BuildRecord) -> Iterator[str]:
    from packager.addons.bench.startup_text import brief_section
    from packager.core.reports.text import section_lines

    if (starts := record.starts) is not None:
        yield f"started    {starts.measured}, {counted(starts.rounds, 'round')}"
        yield from (f"  {line}" for line in section_lines(brief_section(starts)))


LOADS: SectionRow = Row("what was measured under load", _loads)
STARTS: SectionRow = Row("how long cold starts took", _starts)

"""Pages of benchmarks: one report, or several side by side."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import quote

from aiohttp import web

from packager.addons.bench.merge import Named, merge
from packager.addons.bench.reading import REPORTS, read_benchmark
from packager.addons.bench.report import bench_report
from packager.addons.bench.report_page import when_words, workload_words
from packager.addons.bench.tables import OUTPUT, value
from packager.addons.server.jobs.values import JobQuery
from packager.addons.server.pages.numbered import links_of, page_number
from packager.addons.server.pages.recorded import record_files
from packager.addons.server.pages.site import ROOT, Site
from packager.core.bench import BenchReport
from packager.core.command_line import command_text
from packager.core.errors import NotFound, PackagerError, UsageError
from packager.core.reports.page import report_html

ROWS = 20  # of a page: each is read whole
MOST_KNOWN = 20_000  # files that are remembered
MOST_COMPARED = 12
_RECORD = re.compile(r"[0-9a-f]{64}")
_MEASURED = re.compile(rb'"(bench|quality|speculation|starts)": ?\{')


@dataclass(frozen=True, slots=True)
class ReportPlace:
    """A file that figures are read from."""

    key: str  # `record/DIGEST` or `job/NAME`
    path: str  # there may be very many, of which few are opened
    changed: float

    @property
    def file(self) -> Path:
        """Return the file."""
        return Path(self.path)


@dataclass(frozen=True, slots=True)
class BenchmarkPages:
    """Handlers of the pages, with a cache of parsed files."""

    site: Site
    known: dict[tuple[str, float], bool] = field(default_factory=dict)
    rows: dict[tuple[str, float], dict[str, Any] | None] = field(default_factory=dict)

    async def list(self, request: web.Request) -> web.Response:
        """Show a page of benchmark reports, the newest first."""
        number = page_number(request)

        def read() -> tuple[list[dict[str, Any]], bool]:
            start = (number - 1) * ROWS
            found = list(islice(self._measured(), start, start + ROWS + 1))
            return list(filter(None, map(self._row, found[:ROWS]))), len(found) > ROWS

        rows, has_more = await asyncio.to_thread(read)
        links = links_of(f"{ROOT}/benchmarks", number, has_more=has_more)
        values = {"rows": rows, "wide": True, **links}
        return self.site.page(request, "benchmarks.html.j2", values, section="benchmarks")

    async def compare(self, request: web.Request) -> web.Response:
        """Show the report of one benchmark, or of several side by side."""
        keys = request.query.getall("of", [])
        mixed = request.query.get("mixed") == "yes"
        if not keys:
            raise UsageError("no benchmark is chosen", hint="choose one, or several to compare")
        if len(keys) > MOST_COMPARED:
            raise UsageError(
                f"{len(keys)} benchmarks are chosen",
                hint=f"choose {MOST_COMPARED} at most: more do not fit on a page",
            )

        def read() -> str:
            places = [self._find(key) for key in keys]
            named = [read_named(place) for place in places]
            report = merge(named, mixed=mixed)
            command = ("packager", "report", *(str(place.file) for place in places))
            return report_html(
                bench_report(
                    report,
                    sources=tuple(one.name for one in named),
                    command=command_text((*command, *(("--mixed",) if mixed else ()))),
                )
            )

        return self.site.whole(await asyncio.to_thread(read))

    def _row(self, place: ReportPlace) -> dict[str, Any] | None:
        """Return a row; a file is read once, until it changes."""
        mark = (place.key, place.changed)
        if mark not in self.rows:
            if len(self.rows) >= MOST_KNOWN:
                self.rows.clear()
            self.rows[mark] = row_of(place)
        return self.rows[mark]

    def _measured(self) -> Iterator[ReportPlace]:
        """Yield the entries with figures; a file is parsed again only after a change."""
        places = sorted((*self._records(), *self._jobs()), key=lambda one: -one.changed)
        for place in places:
            mark = (place.key, place.changed)
            if mark not in self.known:
                if len(self.known) >= MOST_KNOWN:
                    self.known.clear()
                with suppress(OSError):
                    self.known[mark] = bool(_MEASURED.search(place.file.read_bytes()))
            if self.known.get(mark) or place.key.startswith("job/"):
                yield place

    def _records(self) -> Iterator[ReportPlace]:
        for one in record_files(self.site.services.state.parent / "records"):
            yield ReportPlace(f"record/{one.digest}", one.path, one.changed)

    def _jobs(self) -> Iterator[ReportPlace]:
        """Yield the reports of benchmark jobs that are complete."""
        bench = REPORTS[0]
        query = JobQuery(kind="benchmark", statuses=frozenset({"completed"}), most=1000)
        for job in self.site.services.jobs.list(query).jobs:
            for file in (job.folder / bench, *job.folder.glob(f"*/{bench}")):
                if file.is_file():
                    yield ReportPlace(f"job/{job.name}", str(file), file.stat().st_mtime)
                    break

    def _find(self, key: str) -> ReportPlace:
        kind, _, name = key.partition("/")
        if kind == "record" and _RECORD.fullmatch(name):
            file = self.site.services.state.parent / "records" / f"{name}.json"
            return ReportPlace(key, str(file), 0.0)
        for place in self._jobs() if kind == "job" else ():
            if place.key == key:
                return place
        raise NotFound(f"there is no benchmark {key[:80]!r}", hint="look at the list again")


def read_named(place: ReportPlace) -> Named:
    """Return a directory's report under its display name."""
    found = read_benchmark(place.file)
    name = place.key.partition("/")[2]
    return Named(name=name[:12] if _RECORD.fullmatch(name) else name, report=found.report)


def row_of(place: ReportPlace) -> dict[str, Any] | None:
    """Return a row of the list; None for a file that cannot be read."""
    try:
        report = read_named(place).report
    except (PackagerError, OSError):
        return None
    first = report.variants[0]
    return {
        "key": place.key,
        "name": _name_of(place, report),
        "of": " · ".join(filter(None, (first.setup.instance, first.setup.engine))),
        "measured": when_words(report.measured).removesuffix(" UTC"),
        "workload": workload_words(report.workload) or "none",
        "variants": len(report.variants),
        "best": _best(report),
        "quality": _quality(report),
        "link": f"{ROOT}/benchmarks/compare?of={quote(place.key)}",
    }


def _name_of(place: ReportPlace, report: BenchReport) -> str:
    kind, _, name = place.key.partition("/")
    names = [variant.name for variant in report.variants]
    shown = names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
    return name if kind == "job" else f"{shown}, {name[:12]}"


def _best(report: BenchReport) -> str:
    rates = [
        rate
        for variant in report.variants
        for load in variant.loads
        if (rate := value(load, OUTPUT)) is not None
    ]
    return f"{max(rates):,.1f}" if rates else ""


def _quality(report: BenchReport) -> str:
    found: Sequence[str] = [
        variant.name for variant in report.variants if variant.quality is not None
    ]
    return "measured" if found else ""

"""The first page: what runs, what failed, what was built, which endpoints serve."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

from aiohttp import web

from packager.addons.server.jobs.values import BackgroundJob, JobQuery, JobStatus
from packager.addons.server.pages.job_views import duration, job_path, minute, state_of
from packager.addons.server.pages.recorded import BuildRow, RecordedBuilds
from packager.addons.server.pages.site import ROOT, Site
from packager.core.reports.report import (
    Command,
    Pair,
    Part,
    Report,
    Row,
    Section,
    Table,
    Words,
    word_columns,
)
from packager.core.units import counted

ROWS = 8  # of each list
FAILED_WITHIN = timedelta(days=7)
NOSCRIPT_REFRESH_S = 15
_GOING: frozenset[JobStatus] = frozenset({"queued", "running", "stopping"})
_MOST = 1000


@dataclass(frozen=True, slots=True)
class HomePage:
    """Handler of the page."""

    site: Site
    builds: RecordedBuilds

    async def show(self, request: web.Request) -> web.Response:
        """Show the newest of everything, with links to the whole lists."""
        endpoints = (await self.site.call("ListEndpoints", {"MaxResults": 100}))["Endpoints"]
        now = datetime.now(UTC)

        def read() -> Report:
            jobs = self.site.services.jobs
            going = jobs.list(JobQuery(statuses=_GOING, descending=False, most=_MOST)).jobs
            since = now - FAILED_WITHIN
            failed = jobs.list(
                JobQuery(statuses=frozenset({"failed"}), modified_after=since, most=_MOST)
            ).jobs
            built, _ = self.builds.rows(0, ROWS)
            return home_report(going, failed, built, endpoints, self.builds.count())

        report = await asyncio.to_thread(read)
        values = {"report": report, "wide": True, "first": "", "more": ""}
        values["refresh_s"] = NOSCRIPT_REFRESH_S
        return self.site.page(request, "shown.html.j2", values, section="home")


def home_report(
    going: Sequence[BackgroundJob],
    failed: Sequence[BackgroundJob],
    built: Sequence[BuildRow],
    endpoints: Sequence[Mapping[str, Any]],
    builds: int,
) -> Report:
    """Return the report of the page."""
    serving = [one for one in endpoints if one["EndpointStatus"] == "InService"]
    running = sum(job.status != "queued" for job in going)
    tiles = (
        Pair("running", f"{running:,}"),
        Pair("waiting", f"{len(going) - running:,}"),
        Pair(f"failed in {FAILED_WITHIN.days} days", f"{len(failed):,}"),
        Pair("built", f"{builds:,}"),
        Pair(f"of {counted(len(endpoints), 'endpoint')} in service", f"{len(serving):,}"),
    )
    return Report(
        title="Home",
        tiles=tiles,
        sections=(
            Section(key="running", title="Running and waiting", parts=_running(going)),
            Section(key="failed", title="Failed", parts=_failed(failed)),
            Section(key="built", title="Built", parts=_built(built)),
            Section(key="endpoints", title="Endpoints", parts=_endpoints(endpoints)),
        ),
    )


def _running(jobs: Sequence[BackgroundJob]) -> tuple[Part, ...]:
    rows = []
    for job in jobs[:ROWS]:
        state = state_of(job)
        share = "" if state.share is None else f"{100 * state.share:.0f} %"
        words = " · ".join(filter(None, (state.words, share, state.left)))
        rows.append(Row((job.name, state.status, words), href=_address(job)))
    table = Table(
        columns=word_columns("job", "status", "what it does"),
        rows=tuple(rows),
        caption=_first(len(jobs), "job"),
    )
    none = Words("nothing runs: `New job` makes the next one, and SDKs send them")
    return (table if rows else none, Command("packager jobs ls", "lists the jobs"))


def _failed(jobs: Sequence[BackgroundJob]) -> tuple[Part, ...]:
    rows = tuple(
        Row((job.name, minute(job.ended or job.modified), job.failure), href=_address(job))
        for job in jobs[:ROWS]
    )
    table = Table(
        columns=word_columns("job", "ended, UTC", "why"),
        rows=rows,
        caption=_first(len(jobs), "job"),
    )
    none = Words(f"no job failed in the last {FAILED_WITHIN.days} days")
    return (table,) if rows else (none,)


def _built(builds: Sequence[BuildRow]) -> tuple[Part, ...]:
    rows = tuple(
        Row(
            (
                one.name,
                one.instance,
                one.what,
                one.size,
                one.price,
                one.changed,
            ),
            href=f"{ROOT}/lineage?ref={quote(one.digest, safe='')}",
        )
        for one in builds
    )
    columns = word_columns(
        "model", "for", "served by", "size", "$ an hour", "built or measured, UTC"
    )
    table = Table(columns=columns, rows=rows, caption="The newest; Images lists all")
    none = Words(
        "nothing was built here yet: `packager build MODEL --instance TYPE` builds an image"
    )
    return (table if rows else none,)


def _endpoints(endpoints: Sequence[Mapping[str, Any]]) -> tuple[Part, ...]:
    now = datetime.now(UTC)
    rows = tuple(
        Row(
            (one["EndpointName"], one["EndpointStatus"], _age(one["CreationTime"], now)),
            href=f"{ROOT}/endpoints/{quote(one['EndpointName'], safe='')}",
            tone="error" if one["EndpointStatus"] == "Failed" else "",
        )
        for one in endpoints[:ROWS]
    )
    table = Table(
        columns=word_columns("endpoint", "status", "there for"),
        rows=rows,
        caption=_first(len(endpoints), "endpoint"),
    )
    return (table if rows else Words("no endpoint is there: Deploy an image to have one"),)


def _first(count: int, what: str) -> str:
    return counted(count, what) if count <= ROWS else f"{ROWS} of {counted(count, what)}"


def _address(job: BackgroundJob) -> str:
    return f"{ROOT}/{job_path(job)}"


def _age(when: Any, now: datetime) -> str:
    moment = when if isinstance(when, datetime) else datetime.fromtimestamp(float(when), UTC)
    return duration((now - moment).total_seconds())

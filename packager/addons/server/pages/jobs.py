"""Pages of jobs: the list, a job, its log; to stop and to delete it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import cast, get_args
from urllib.parse import urlencode

from aiohttp import web
from markupsafe import Markup

from packager.addons.server.jobs.values import ENDED, BackgroundJob, JobKind, JobQuery, JobStatus
from packager.addons.server.pages.guard import PageRefused
from packager.addons.server.pages.job_views import (
    KINDS,
    asked_of,
    can_run,
    facts_of,
    job_path,
    record_of,
    result_of,
    row_of,
    stages_of,
    state_of,
)
from packager.addons.server.pages.logs import log_tail
from packager.addons.server.pages.site import HEADERS, ROOT, Site
from packager.addons.server.sagemaker.measured import recorded, state_parts

ROWS = 50  # of a page
SORTS = {
    "newest": ("created", True),
    "oldest": ("created", False),
    "name": ("name", False),
    "status": ("status", False),
}
NOSCRIPT_REFRESH_S = 5
_MOST_NAME = 63


@dataclass(frozen=True, slots=True)
class JobPages:
    """Handlers of the pages about jobs."""

    site: Site

    async def list(self, request: web.Request) -> web.Response:
        """Show a page of the list, with the form's filters."""
        query = query_of(request.query)
        found = await asyncio.to_thread(self.site.services.jobs.list, query)
        now = datetime.now(UTC)
        rows = await asyncio.to_thread(lambda: [row_of(job, now) for job in found.jobs])
        given = {name: value for name, value in request.query.items() if value and name != "after"}
        more = f"{ROOT}/jobs?{urlencode({**given, 'after': found.token})}" if found.token else ""
        values = {
            "rows": rows,
            "given": dict.fromkeys(("name", "kind", "status", "sort"), "") | given,
            "kinds": KINDS,
            "statuses": get_args(JobStatus),
            "sorts": SORTS,
            "first": f"{ROOT}/jobs?{urlencode(given)}" if request.query.get("after") else "",
            "more": more,
            "is_filtered": bool(given.keys() - {"sort"}),
            "live": any(not row["state"].ended for row in rows),
            "refresh_s": NOSCRIPT_REFRESH_S if any(not row["state"].ended for row in rows) else 0,
        }
        return self.site.page(request, "jobs.html.j2", values, section="jobs")

    async def show(self, request: web.Request) -> web.Response:
        """Show a job."""
        job = await self._job(request)
        now = datetime.now(UTC)

        def read() -> dict[str, object]:
            record = record_of(job)
            log, end = log_tail(job.log)
            measured = recorded(record.bench, record.quality) if record else None
            return {
                "job": job,
                "path": job_path(job),
                "state": state_of(job),
                "facts": list(facts_of(job, now)),
                "stages": list(stages_of(job)),
                "asked": Markup.escape(asked_of(job)),
                "result": list(result_of(record)) if record else [],
                "measured": state_parts(measured) if measured else (),
                "findings": record.findings if record else (),
                "record": record,
                "can_run": record is not None and can_run(record),
                "log": Markup.escape(log),  # with its ends of lines
                "log_end": end,
                "refresh_s": 0 if job.status in ENDED else NOSCRIPT_REFRESH_S,
            }

        values = await asyncio.to_thread(read)
        return self.site.page(request, "job.html.j2", values, section="jobs")

    async def log(self, request: web.Request) -> web.StreamResponse:
        """Return the whole log, as the text that it is."""
        job = await self._job(request)
        if not job.log.is_file():
            raise PageRefused("the job has no log yet", status=404)
        response = web.FileResponse(job.log, headers=HEADERS)
        response.content_type = "text/plain"
        response.charset = "utf-8"
        response.headers["Content-Security-Policy"] = "default-src 'none'; sandbox"
        return response

    async def stop(self, request: web.Request) -> web.Response:
        """Request the job's end."""
        await self.site.guard.form(request)
        job = await self._job(request)
        await asyncio.to_thread(self.site.services.jobs.stop, job.kind, job.name)
        return self.site.see(job_path(job))

    async def delete(self, request: web.Request) -> web.Response:
        """Remove a job that has ended, with its folder."""
        await self.site.guard.form(request)
        job = await self._job(request)
        await asyncio.to_thread(self.site.services.jobs.delete, job.kind, job.name)
        return self.site.see("jobs")

    async def _job(self, request: web.Request) -> BackgroundJob:
        kind, name = request.match_info["kind"], request.match_info["name"]
        return await asyncio.to_thread(self.site.services.jobs.get, kind, name)


def query_of(given: Mapping[str, str]) -> JobQuery:
    """Return the query of the list's form; invalid filters are ignored."""
    kind, status = given.get("kind", ""), given.get("status", "")
    column, descending = SORTS.get(given.get("sort", ""), SORTS["newest"])
    return JobQuery(
        kind=cast(JobKind, kind) if kind in KINDS else None,
        name_contains=given.get("name", "").strip()[:_MOST_NAME],
        statuses=frozenset({cast(JobStatus, status)})
        if status in get_args(JobStatus)
        else frozenset(),
        sort_by=column,  # type: ignore[arg-type]
        descending=descending,
        most=ROWS,
        after=given.get("after", "")[:8192],
    )

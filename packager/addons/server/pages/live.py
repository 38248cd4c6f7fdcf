"""Live updates of pages: states of jobs and lines of logs, as server-sent events.

A stream ends after a while and the browser opens the next one, so a server can stop without waiting
for clients, and a lost connection is replaced.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field

from aiohttp import web

from packager.addons.server.jobs.errors import JobMissing
from packager.addons.server.jobs.values import ENDED, BackgroundJob
from packager.addons.server.pages.guard import PageRefused
from packager.addons.server.pages.job_views import state_of
from packager.addons.server.pages.logs import log_part
from packager.addons.server.pages.site import HEADERS, Site

STREAM_S = 20.0
PAUSE_S = 1.0
MOST_STREAMS = 64
MOST_WATCHED = 50  # jobs of one stream
CHUNKS = 16  # of a log that are sent at once
_RETRY_MS = 500


@dataclass(slots=True)
class LivePages:
    """Handlers of streams."""

    site: Site
    pause_s: float = PAUSE_S
    stream_s: float = STREAM_S
    _open: int = field(default=0, init=False)

    async def job(self, request: web.Request) -> web.StreamResponse:
        """Stream a job's state and new lines of its log."""
        kind, name = request.match_info["kind"], request.match_info["name"]
        asked = request.headers.get("Last-Event-ID") or request.query.get("from", "0")
        place = int(asked) if asked.isascii() and asked.isdigit() and len(asked) < 19 else 0
        before, whole = "", False

        def events() -> Iterator[str]:
            nonlocal place, before, whole
            job = self.site.services.jobs.get(kind, name)
            for _ in range(CHUNKS):
                text, end = log_part(job.log, place)
                whole = end == place
                if whole:
                    break
                place = end
                yield _event("log", {"text": text}, identity=place)
            now = json.dumps(asdict(state_of(job)))
            if now != before:
                before = now
                yield f"event: job\ndata: {now}\n\n"
            if whole and job.status in ENDED:
                yield _event("end", {})

        return await self._stream(request, events)

    async def jobs(self, request: web.Request) -> web.StreamResponse:
        """Stream the states of jobs that a list shows."""
        watched = [key.partition("/") for key in request.query.getall("job", [])[:MOST_WATCHED]]
        before: dict[tuple[str, str], str] = {}

        def events() -> Iterator[str]:
            running = False
            for kind, _, name in watched:
                job = self._find(kind, name)
                if job is None:
                    continue
                running = running or job.status not in ENDED
                now = json.dumps(asdict(state_of(job)))
                if before.get((kind, name)) != now:
                    before[kind, name] = now
                    yield f"event: job\ndata: {now}\n\n"
            if not running:
                yield _event("end", {})

        return await self._stream(request, events)

    def _find(self, kind: str, name: str) -> BackgroundJob | None:
        with suppress(JobMissing):
            return self.site.services.jobs.get(kind, name)
        return None

    async def _paused(self) -> bool:
        """Wait until there may be news; return whether the server ends."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self.site.ending.wait(), self.pause_s)
        return self.site.ending.is_set()

    async def _stream(
        self, request: web.Request, events: Callable[[], Iterator[str]]
    ) -> web.StreamResponse:
        """Send events until the time is over, the end was sent, or the client disconnects."""
        if self._open >= MOST_STREAMS:
            raise PageRefused("too many pages are open", status=503)
        self._open += 1
        try:
            first = await asyncio.to_thread(_collect, events)  # refusals have their own status
            response = web.StreamResponse(headers=HEADERS)
            response.content_type = "text/event-stream"
            response.charset = "utf-8"
            until = time.monotonic() + self.stream_s
            with suppress(ConnectionError):
                await response.prepare(request)
                await response.write(f"retry: {_RETRY_MS}\n\n{first}".encode())
                ended = "event: end" in first
                while not ended and time.monotonic() < until and not await self._paused():
                    text = await asyncio.to_thread(_collect, events)
                    ended = "\nevent: end\n" in f"\n{text}"
                    await response.write((text or ": still here\n\n").encode())
            return response
        finally:
            self._open -= 1


def _collect(events: Callable[[], Iterator[str]]) -> str:
    return "".join(events())


def _event(name: str, data: object, *, identity: int | None = None) -> str:
    mark = f"id: {identity}\n" if identity is not None else ""
    return f"{mark}event: {name}\ndata: {json.dumps(data)}\n\n"

"""Logs of jobs through CloudWatch Logs' API: SDKs read them while they wait.

Those of endpoints are in `endpoint_logs`.

A group is a kind of job, a stream in it the job of that name; every line of a job's log is an
event, with the time that it begins with.  Tokens are positions in the log's file.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from packager.addons.server.jobs.values import BackgroundJob, JobKind, JobQuery
from packager.addons.server.operations import endpoint_logs
from packager.addons.server.operations.log_errors import invalid_parameter, log_missing
from packager.addons.server.services import Document, Operation, ServeServices
from packager.core.documents import shorten

SERVICE = "Logs_20140328"
GROUPS: dict[str, JobKind] = {
    "/aws/sagemaker/OptimizationJobs": "optimization",
    "/aws/sagemaker/AIBenchmarkJobs": "benchmark",
    "/aws/sagemaker/AIRecommendationJobs": "recommendation",
}
MOST_EVENTS = 10_000  # of one answer, as of AWS
MOST_BYTES = 1024 * 1024  # of the log, of one answer
_MOST_STREAMS = 50
Work = Callable[[ServeServices, Document], Document]
EndpointWork = Callable[[ServeServices, Document], Awaitable[Document]]
_TIME = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3})Z ")
_POSITION = re.compile(r"([fb])/(\d{1,18})")


def operations(services: ServeServices) -> Mapping[str, Operation]:
    """Return the operations of logs."""

    def either(work: Work, of_endpoints: EndpointWork) -> Operation:
        async def run(body: Document) -> Document:
            group = body.get("logGroupName") or body.get("logGroupIdentifier")
            if endpoint_logs.is_endpoint_group(group):
                return await of_endpoints(services, body)
            return await asyncio.to_thread(work, services, body)

        return run

    return {
        "DescribeLogStreams": either(_streams, endpoint_logs.streams),
        "FilterLogEvents": either(_filtered, endpoint_logs.filtered),
        "GetLogEvents": either(_events, endpoint_logs.events),
    }


def _streams(services: ServeServices, body: Document) -> Document:
    kind = _group(body)
    prefix = _text(body, "logStreamNamePrefix")
    most = _number(body, "limit", _MOST_STREAMS, _MOST_STREAMS)
    query = JobQuery(
        kind=kind,
        name_contains=prefix,
        most=most,
        sort_by="name",
        descending=False,
        after=_text(body, "nextToken"),
    )
    page = services.jobs.list(query)
    streams = [_stream(job) for job in page.jobs if job.name.startswith(prefix)]
    return {"logStreams": streams} | ({"nextToken": page.token} if page.token else {})


def _stream(job: BackgroundJob) -> dict[str, Any]:
    return {
        "logStreamName": job.name,
        "creationTime": _milliseconds(job.created),
        "lastEventTimestamp": _milliseconds(job.modified),
        "storedBytes": 0,
    }


def _events(services: ServeServices, body: Document) -> Document:
    """Answer GetLogEvents: on from a position, the same position again at the log's end."""
    job = _job(services, _group(body), _text(body, "logStreamName", needed=True))
    token = _text(body, "nextToken")
    found = _POSITION.fullmatch(token) if token else None
    if token and found is None:
        raise invalid_parameter("the nextToken is not one of this log")
    begin = int(found[2]) if found else 0
    if found and found[1] == "b":  # all older events were already read
        return {"events": [], "nextForwardToken": f"f/{begin}", "nextBackwardToken": token}
    most = _number(body, "limit", MOST_EVENTS, MOST_EVENTS)
    events, end = _read(job, body, begin, most)
    shown = [{"timestamp": at, "message": text, "ingestionTime": at} for _, at, text in events]
    return {"events": shown, "nextForwardToken": f"f/{end}", "nextBackwardToken": f"b/{begin}"}


def _filtered(services: ServeServices, body: Document) -> Document:
    """Answer FilterLogEvents of one stream; without a stream nothing is searched."""
    kind = _group(body)
    if body.get("filterPattern"):
        raise invalid_parameter("a filterPattern is not supported")
    names = body.get("logStreamNames") or []
    if not isinstance(names, list) or len(names) > 1 or not all(isinstance(n, str) for n in names):
        raise invalid_parameter("logStreamNames must name one stream")
    prefix = _text(body, "logStreamNamePrefix")
    if not names and not prefix:
        return {"events": [], "searchedLogStreams": []}
    if not names:
        page = services.jobs.list(JobQuery(kind=kind, name_contains=prefix, most=100))
        names = [job.name for job in page.jobs if job.name.startswith(prefix)][:1]
        if not names:
            return {"events": [], "searchedLogStreams": []}
    job = _job(services, kind, names[0])
    token = _text(body, "nextToken")
    found = _POSITION.fullmatch(token) if token else None
    if token and (found is None or found[1] != "f"):
        raise invalid_parameter("the nextToken is not one of this log")
    begin = int(found[2]) if found else 0
    most = _number(body, "limit", MOST_EVENTS, MOST_EVENTS)
    events, end = _read(job, body, begin, most)
    shown = [
        {
            "logStreamName": job.name,
            "timestamp": at,
            "message": text,
            "ingestionTime": at,
            "eventId": f"{position:020}",
        }
        for position, at, text in events
    ]
    more = {"nextToken": f"f/{end}"} if end > begin and end < _size(job.log) else {}
    return {"events": shown, "searchedLogStreams": []} | more


def _read(
    job: BackgroundJob, body: Document, begin: int, most: int
) -> tuple[list[tuple[int, int, str]], int]:
    """Return events (position, milliseconds, text) from a position, and where the next begin."""
    first = _number(body, "startTime", 0, 2**63)
    last = _number(body, "endTime", 2**63, 2**63)
    found: list[tuple[int, int, str]] = []
    at = _milliseconds(job.created)
    end = begin
    for line in _lines(job.log, begin):
        if len(found) >= most:
            break
        position, end = end, end + len(line)
        text = line
        if matched := _TIME.match(line):
            moment = datetime.fromisoformat(matched[1].decode()).replace(tzinfo=UTC)
            at, text = _milliseconds(moment), line[matched.end() :]
        if first <= at < last:
            found.append((position, at, text.decode("utf-8", "replace").rstrip("\n")))
    return found, end


def _lines(path: Path, begin: int) -> Iterator[bytes]:
    """Yield whole lines of a log from a position on; the last one may be still being written."""
    try:
        with path.open("rb") as file:
            file.seek(begin)
            data = file.read(MOST_BYTES)
    except FileNotFoundError:
        return
    whole, line_feed, _ = data.rpartition(b"\n")
    if not line_feed and len(data) == MOST_BYTES:
        yield data  # a line longer than an answer, in pieces
    elif line_feed:
        yield from (whole + line_feed).splitlines(keepends=True)


def _group(body: Document) -> JobKind:
    name = _text(body, "logGroupName") or _text(body, "logGroupIdentifier", needed=True)
    kind = GROUPS.get(name)
    if kind is None:
        raise log_missing("the specified log group does not exist")
    return kind


def _job(services: ServeServices, kind: JobKind, name: str) -> BackgroundJob:
    from packager.addons.server.jobs.errors import JobMissing

    try:
        return services.jobs.get(kind, name)
    except JobMissing:
        raise log_missing("the specified log stream does not exist") from None


def _text(body: Document, name: str, *, needed: bool = False) -> str:
    value = body.get(name, "")
    if not isinstance(value, str) or (needed and not value):
        raise invalid_parameter(f"{name} is missing or not a string: {shorten(value)}")
    return value


def _number(body: Document, name: str, otherwise: int, most: int) -> int:
    value = body.get(name, otherwise)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        raise invalid_parameter(f"{name} is not a number up to {most}: {shorten(value)}")
    return value


def _milliseconds(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0

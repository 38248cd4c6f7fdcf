"""Logs of endpoints' containers as CloudWatch Logs has them.

A group is an endpoint or a component, a stream in it one of its containers.  Of one that has
failed, the end of its log is kept until it is deleted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from packager.addons.deploy.sagemaker.api_refusals import ResourceNotFound
from packager.addons.server.endpoints.deployments import COMPONENT, ENDPOINT
from packager.addons.server.operations.log_errors import invalid_parameter, log_missing
from packager.addons.server.services import Document, ServeServices

GROUPS = {
    "/aws/sagemaker/Endpoints/": ENDPOINT,
    "/aws/sagemaker/InferenceComponents/": COMPONENT,
}
MOST_EVENTS = 10_000


@dataclass(frozen=True, slots=True)
class ContainerLogLine:
    """One line of a container's log."""

    stream: str
    at_ms: int
    text: str


def is_endpoint_group(name: object) -> bool:
    """Return whether a group of logs is one of these."""
    return isinstance(name, str) and name.startswith(tuple(GROUPS))


async def filtered(services: ServeServices, body: Document) -> Document:
    """Answer FilterLogEvents: the lines of all containers, in the order of their times."""
    lines, begin, most = await _asked(services, body)
    shown = [
        {
            "logStreamName": line.stream,
            "timestamp": line.at_ms,
            "ingestionTime": line.at_ms,
            "message": line.text,
            "eventId": f"{number:020}",
        }
        for number, line in enumerate(lines[begin : begin + most], begin)
    ]
    end = begin + len(shown)
    more = {"nextToken": f"f/{end}"} if end < len(lines) else {}
    return {"events": shown, "searchedLogStreams": []} | more


async def events(services: ServeServices, body: Document) -> Document:
    """Answer GetLogEvents of one container."""
    stream = body.get("logStreamName")
    lines, begin, most = await _asked(services, {**body, "logStreamNames": [stream]})
    shown = [
        {"timestamp": line.at_ms, "ingestionTime": line.at_ms, "message": line.text}
        for line in lines[begin : begin + most]
    ]
    end = begin + len(shown)
    return {"events": shown, "nextForwardToken": f"f/{end}", "nextBackwardToken": f"b/{begin}"}


async def streams(services: ServeServices, body: Document) -> Document:
    """Answer DescribeLogStreams."""
    found: dict[str, list[int]] = {}
    for line in await _lines(services, body):
        found.setdefault(line.stream, []).append(line.at_ms)
    return {
        "logStreams": [
            {
                "logStreamName": stream,
                "creationTime": min(times),
                "firstEventTimestamp": min(times),
                "lastEventTimestamp": max(times),
                "storedBytes": 0,
            }
            for stream, times in sorted(found.items())
        ]
    }


async def _asked(
    services: ServeServices, body: Document
) -> tuple[list[ContainerLogLine], int, int]:
    """Return the lines that a request lets pass, from which it wants them, and how many."""
    if body.get("filterPattern"):
        raise invalid_parameter("a filterPattern is not supported")
    names = body.get("logStreamNames") or ()
    prefix = body.get("logStreamNamePrefix") or ""
    first, last = body.get("startTime") or 0, body.get("endTime") or 2**63
    token, most = body.get("nextToken") or "f/0", body.get("limit") or MOST_EVENTS
    try:
        kind, begin = token.split("/")
        passed = [
            line
            for line in await _lines(services, body)
            if (not names or line.stream in names)
            and line.stream.startswith(prefix)
            and first <= line.at_ms < last
        ]
        if kind == "b":
            return passed, int(begin), 0
        return passed, int(begin), min(int(most), MOST_EVENTS)
    except (AttributeError, TypeError, ValueError):
        raise invalid_parameter("a parameter of the request is invalid") from None


async def _lines(services: ServeServices, body: Document) -> list[ContainerLogLine]:
    """Return all lines of a group; raises `ApiRefusal`."""
    group = str(body.get("logGroupName") or body.get("logGroupIdentifier"))
    prefix = next(prefix for prefix in GROUPS if group.startswith(prefix))
    kind, name = GROUPS[prefix], group.removeprefix(prefix)
    try:
        await asyncio.to_thread(services.resources.get, kind, name)
    except ResourceNotFound:
        raise log_missing("the specified log group does not exist") from None
    logs = await services.endpoints.logs(kind, name)
    found = [line for stream, text in logs.items() for line in _parsed(stream, text)]
    return sorted(found, key=lambda line: line.at_ms)


def _parsed(stream: str, text: str) -> Iterator[ContainerLogLine]:
    """Yield lines, each of which begins with the time that the Engine has put before it."""
    at_ms = 0
    for line in text.splitlines():
        moment, _, rest = line.partition(" ")
        try:
            # The Engine writes nanoseconds, of which Python reads the first six digits.
            logged_at = datetime.fromisoformat(moment[:26].rstrip("Z")).replace(tzinfo=UTC)
            at_ms = int(logged_at.timestamp() * 1000)
        except ValueError:
            rest = line
        yield ContainerLogLine(stream, at_ms, rest)

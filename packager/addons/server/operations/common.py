"""What operations on resources have in common: names that are taken or missing, lists, tags."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from packager.addons.deploy.sagemaker.api_refusals import (
    ResourceInUse,
    ResourceNotFound,
    ValidationRefused,
)
from packager.addons.server.jobs.values import JobPage, JobQuery
from packager.addons.server.resources import Resource, ResourceQuery
from packager.addons.server.services import Document, ServeServices

_SORTS = {"Name": "name", "CreationTime": "created", "Status": "status"}

# As the service calls them in its messages.
_WORDS = {"endpoint-config": "endpoint configuration", "inference-component": "inference component"}


async def find(services: ServeServices, kind: str, name: str) -> Resource:
    """Return a resource; raises what AWS answers without one, which SDKs wait for."""
    try:
        return await asyncio.to_thread(services.resources.get, kind, name)
    except ResourceNotFound:
        raise missing(services, kind, name) from None


def missing(services: ServeServices, kind: str, name: str) -> ValidationRefused:
    """Return the refusal of an unknown name."""
    arn = services.settings.arn(kind, name)
    return ValidationRefused(f'Could not find {_WORDS.get(kind, kind)} "{arn}".')


async def keep(services: ServeServices, kind: str, name: str, body: Document) -> Resource:
    """Store a new resource and its tags; raises AWS's error for a name in use."""
    arn = services.settings.arn(kind, name)
    document = {key: value for key, value in body.items() if key != "Tags"}
    try:
        return await asyncio.to_thread(
            lambda: services.resources.create(kind, name, document, arn=arn, tags=tags_of(body))
        )
    except ResourceInUse:
        raise taken(services, kind, name) from None


def taken(services: ServeServices, kind: str, name: str) -> ValidationRefused:
    """Return the refusal of a name in use; SDKs match its wording."""
    arn = services.settings.arn(kind, name)
    return ValidationRefused(f'Cannot create already existing {_WORDS.get(kind, kind)} "{arn}".')


async def list_resources(
    services: ServeServices,
    kind: str,
    body: Document,
    *,
    member: str,
    summary: Callable[[Resource], Mapping[str, Any]],
    lets_pass: Callable[[Resource], bool] = lambda _: True,
) -> Document:
    """Return a page of a list under the name of its member."""
    status = body.get("StatusEquals")
    query = ResourceQuery(
        kind=kind,
        name_contains=body.get("NameContains") or "",
        statuses=frozenset((status,)) if status else frozenset(),
        created_after=_time(body, "CreationTimeAfter"),
        created_before=_time(body, "CreationTimeBefore"),
        modified_after=_time(body, "LastModifiedTimeAfter"),
        modified_before=_time(body, "LastModifiedTimeBefore"),
        sort_by=_SORTS[body.get("SortBy", "CreationTime")],  # type: ignore[arg-type]
        descending=body.get("SortOrder", "Descending") == "Descending",
        most=body.get("MaxResults", 100),
        after=body.get("NextToken") or "",
    )
    page = await asyncio.to_thread(services.resources.list, query)
    answer: dict[str, Any] = {member: [summary(one) for one in page.resources if lets_pass(one)]}
    if page.token:
        answer["NextToken"] = page.token
    return answer


async def list_jobs(services: ServeServices, query: JobQuery) -> JobPage:
    """Return a page of jobs, read in a thread where that may take long."""
    found = services.jobs.list_quickly(query)
    return await asyncio.to_thread(services.jobs.list, query) if found is None else found


def tags_of(body: Document) -> dict[str, str]:
    """Return the tags of a request; the last of a key counts."""
    return {tag["Key"]: tag["Value"] for tag in body.get("Tags") or ()}


def _time(body: Document, member: str) -> datetime | None:
    """Return a time of a request, which is written as seconds since 1970."""
    value = body.get(member)
    if value is None:
        return None
    try:
        return datetime.fromtimestamp(float(value), UTC)
    except (TypeError, ValueError, OverflowError, OSError):
        raise ValidationRefused(f"{member} is no time in seconds since 1970.") from None

"""Tags of everything that has an ARN: add, delete, list."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from packager.addons.deploy.sagemaker.api_refusals import ResourceNotFound, resource_limit_exceeded
from packager.addons.server.jobs.values import JobKind
from packager.addons.server.services import Document, Operation, ServeServices
from packager.addons.server.tokens import PageKey, query_mark_of, read_token, write_token

MOST_TAGS = 50  # of one resource, as of AWS
_JOBS: dict[str, JobKind] = {
    "optimization-job": "optimization",
    "ai-benchmark-job": "benchmark",
    "ai-recommendation-job": "recommendation",
}
Tags = Mapping[str, str]


def operations(services: ServeServices) -> Mapping[str, Operation]:
    """Return the operations of tags."""
    one_change = asyncio.Lock()  # tags are read, changed and written

    async def add(body: Document) -> Document:
        added = {tag["Key"]: tag["Value"] for tag in body["Tags"]}
        async with one_change:
            tags = await asyncio.to_thread(
                _change, services, body["ResourceArn"], lambda before: {**before, **added}
            )
        return {"Tags": _listed(tags)}

    async def delete(body: Document) -> Document:
        gone = set(body["TagKeys"])
        async with one_change:
            await asyncio.to_thread(
                _change,
                services,
                body["ResourceArn"],
                lambda before: {key: value for key, value in before.items() if key not in gone},
            )
        return {}

    async def list_some(body: Document) -> Document:
        arn = body["ResourceArn"]
        tags = await asyncio.to_thread(_change, services, arn, None)
        most, mark = body.get("MaxResults", MOST_TAGS), query_mark_of("tags", arn)
        after = read_token(body["NextToken"], mark).name if body.get("NextToken") else ""
        left = [tag for tag in _listed(tags) if tag["Key"] > after]
        answer: dict[str, object] = {"Tags": left[:most]}
        if len(left) > most:
            last = left[most - 1]["Key"]
            answer["NextToken"] = write_token(PageKey(value="", name=last), mark)
        return answer

    return {"AddTags": add, "DeleteTags": delete, "ListTags": list_some}


def _change(services: ServeServices, arn: str, change: Callable[[Tags], Tags] | None) -> Tags:
    """Return the tags of an ARN, changed where there is a change."""
    missing = ResourceNotFound("there is nothing of this ARN here")
    parts = arn.split(":", 5)
    kind, _, name = parts[5].partition("/")
    if parts[3:5] != [services.settings.region, services.settings.account]:
        raise missing
    if kind in _JOBS:
        job = services.jobs.get(_JOBS[kind], name)
        if change is None:
            return job.asked.tags
        changed = services.jobs.tag(job.kind, job.name, _checked(change(job.asked.tags)))
        return changed.asked.tags
    found = services.resources.find_arn(arn)
    if found is None:
        raise missing
    if change is None:
        return found.tags
    tags = _checked(change(found.tags))
    return services.resources.update(found.kind, found.name, tags=tags).tags


def _checked(tags: Tags) -> Tags:
    if len(tags) > MOST_TAGS:
        raise resource_limit_exceeded(f"a resource has at most {MOST_TAGS} tags")
    return tags


def _listed(tags: Tags) -> list[dict[str, str]]:
    return [{"Key": key, "Value": tags[key]} for key in sorted(tags)]

"""What S3 and servers that speak its protocol spell in several ways: names, ETags, listings."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

# Buckets of 2018 and before in us-east-1, and other servers', have capitals, `_` and 255 letters.
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,253}[A-Za-z0-9]")
_ARN = re.compile(
    r"(?P<of>arn:aws[a-z-]*:s3:[a-z0-9-]+:[0-9]{12}:accesspoint)[:/](?P<name>[a-z0-9-]{3,50})(?![^/])"
)
_MANY_REGIONS = re.compile(r"arn:aws[a-z-]*:s3::[0-9]{12}:accesspoint\b.*")


def split_place(text: str) -> tuple[str, str]:
    """Return bucket and key of `s3://BUCKET/KEY`, or of what stands behind `s3://`.

    The bucket may be an access point's ARN, `arn:aws:s3:REGION:ACCOUNT:accesspoint/NAME`; it comes
    back without a slash, as boto3 takes it too.
    """
    rest = text.removeprefix("s3://")
    if found := _ARN.match(rest):
        return f"{found['of']}:{found['name']}", rest[found.end() :].removeprefix("/")
    bucket, _, key = rest.partition("/")
    return bucket, key


def bucket_name(bucket: str) -> str:
    """Return what people call a bucket: of an access point, its name."""
    return bucket.rpartition(":")[2]


def why_no_bucket(bucket: str) -> str:
    """Return why a text of `split_place` can name no bucket; "" where it can."""
    if _BUCKET.fullmatch(bucket) or _ARN.fullmatch(bucket):
        return ""
    if _MANY_REGIONS.match(bucket):
        return "access points of several regions take signatures that boto3 does not make by itself"
    if bucket.startswith("arn:"):
        return "of ARNs, those of access points of one region are taken"
    return f"{bucket!r} is not the name of a bucket"


def strong_etag(text: object) -> str:
    """Return an ETag as `If-Match` compares it; "" for none.

    Proxies that may compress make it weak, and there are servers that leave out its quotes.
    """
    plain = str(text or "").removeprefix("W/").strip('"')
    return f'"{plain}"' if plain else ""


def list_pages(call: Callable[..., Any], **request: Any) -> Iterator[dict[str, Any]]:
    """Yield the pages of a listing without a delimiter; `call` sends an operation by its name.

    Servers that know only the first version of listings give no token: they are asked by it on.
    Raises `LookupError` for pages that lead nowhere: a listing is whole, or refused.
    """
    operation = "list_objects_v2"
    while True:
        page = call(operation, **request)
        yield page
        if not page.get("IsTruncated"):
            return
        if token := page.get("NextContinuationToken"):
            request["ContinuationToken"] = token
            continue
        operation = "list_objects"
        last = max((str(one.get("Key", "")) for one in page.get("Contents", ())), default="")
        if last <= str(request.get("Marker", "")):
            raise LookupError("a listing goes on and has nothing new")
        request["Marker"] = last

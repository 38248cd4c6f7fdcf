"""Listings of buckets: every object pinned as it was listed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from functools import partial
from typing import Any

from artifact_cache.aws import call_s3
from artifact_cache.buckets import list_pages
from packager.core.errors import ProtocolFailed
from packager.core.image import RemoteRange
from packager.core.remote.addresses import S3Address
from packager.core.remote.s3 import explained

LARGEST_OBJECT = 2**63 - 1  # what a layer may have; S3 itself ends long before


def list_bucket(client: Any, bucket: str, prefix: str) -> Iterator[S3Address]:
    """Yield the objects whose keys begin with a prefix, without directories as consoles make them.

    Raises what `explained` raises, and `ProtocolFailed` for rows that cannot be used.
    """
    with explained(bucket, None):
        for page in list_pages(partial(call_s3, client), Bucket=bucket, Prefix=prefix):
            for found in page.get("Contents", ()):
                listed = _listed(bucket, found)
                if not (listed.key.endswith("/") and listed.size == 0):
                    yield listed


def whole_object(found: S3Address) -> RemoteRange:
    """Return all bytes of an object, as it was listed."""
    return RemoteRange(url=found.url, offset=0, length=found.size)


def _listed(bucket: str, found: Mapping[str, Any]) -> S3Address:
    """Read one row of a listing; servers that leave fields out exist."""
    key, size, etag = found.get("Key"), found.get("Size"), found.get("ETag")
    modified = found.get("LastModified")
    if (
        not (isinstance(key, str) and key and isinstance(etag, str) and etag)
        or not (isinstance(size, int) and 0 <= size <= LARGEST_OBJECT)
        or not isinstance(modified, datetime)
    ):
        raise ProtocolFailed(
            f"the server behind bucket {bucket!r} lists an object without a key, size, ETag and "
            "time that can be used",
            hint="check AWS_ENDPOINT_URL: a complete S3 must answer there",
        )
    try:
        modified_us = max(0, int(modified.timestamp() * 1_000_000))
    except (OverflowError, ValueError):
        modified_us = 0  # outside the range of datetime
    return S3Address(bucket=bucket, key=key, size=size, etag=etag, modified_us=modified_us)

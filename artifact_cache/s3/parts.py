"""Uploads in parts: begun, and the parts that a bucket has of one; checksums as S3 takes them."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

from artifact_cache.s3.buckets import strong_etag

MOST_PARTS = 10_000
DIGEST = "packager-sha256"  # in an object's metadata, where it was known before it was sent


def checksum(digest: bytes) -> str:
    """Return a checksum as a header has it."""
    return base64.b64encode(digest).decode()


def begin_upload(call: Callable[..., Any], key: str, sha256: str, algorithm: str) -> str:
    """Begin an upload and return its id, "" where the server gives none.

    `sha256` goes into the object's metadata; "" where it is not known yet.
    """
    answer = call(
        "create_multipart_upload",
        Key=key,
        Metadata={DIGEST: sha256} if sha256 else {},
        ChecksumAlgorithm=algorithm,
    )
    return str(answer.get("UploadId") or "")


def uploaded_parts(call: Callable[..., Any], **upload: Any) -> dict[int, str]:
    """Return the ETags of the parts that the bucket has of an upload, by their numbers."""
    found: dict[int, str] = {}
    marker = 0
    while True:
        answer = call("list_parts", PartNumberMarker=marker, **upload)
        for part in answer.get("Parts", ()):
            found[int(part["PartNumber"])] = strong_etag(part["ETag"])
        if not answer.get("IsTruncated"):
            return found
        marker = int(answer["NextPartNumberMarker"])

"""Small files put into a bucket."""

from __future__ import annotations

import mimetypes
from collections.abc import Mapping
from typing import Any

from packager.core.references import BucketPlace
from packager.remote.s3 import explained, s3_client


def put_files(at: BucketPlace, files: Mapping[str, bytes], client: Any | None = None) -> None:
    """Write each file to the bucket, its name behind the key; "" is the key itself.

    Raises what reading from a bucket does.
    """
    client = client or s3_client()
    for name, data in files.items():
        place = f"{at.key.rstrip('/')}/{name}" if name else at.key
        kind = mimetypes.guess_type(place)[0] or "application/octet-stream"
        with explained(at.bucket, None):
            client.put_object(Bucket=at.bucket, Key=place, Body=data, ContentType=kind)

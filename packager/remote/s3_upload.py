"""Small files put into a bucket."""

from __future__ import annotations

import mimetypes
from collections.abc import Mapping
from typing import Any

from packager.remote.s3 import explained, s3_client


def put_files(url: str, files: Mapping[str, bytes], client: Any | None = None) -> None:
    """Write each file to `s3://BUCKET/KEY`, its name behind the key; "" is the key itself.

    Raises what reading from a bucket does.
    """
    bucket, _, key = url.removeprefix("s3://").partition("/")
    client = client or s3_client()
    for name, data in files.items():
        place = f"{key.rstrip('/')}/{name}" if name else key
        kind = mimetypes.guess_type(place)[0] or "application/octet-stream"
        with explained(bucket, None):
            client.put_object(Bucket=bucket, Key=place, Body=data, ContentType=kind)

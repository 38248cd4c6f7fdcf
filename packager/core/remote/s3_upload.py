"""Small files put into a bucket."""

from __future__ import annotations

import base64
import hashlib
import mimetypes
from collections.abc import Mapping
from typing import Any

from packager.core.references import BucketPlace
from packager.core.remote.s3_write import WritableBucket


def put_files(at: BucketPlace, files: Mapping[str, bytes], client: Any | None = None) -> None:
    """Write each file to the bucket, its name behind the key; "" is the key itself.

    Raises what writing to a bucket does (`WritableBucket.call`).
    """
    bucket = WritableBucket(at.bucket, client)
    for name, data in files.items():
        place = f"{at.key.rstrip('/')}/{name}" if name else at.key
        kind = mimetypes.guess_type(place)[0] or "application/octet-stream"
        checksum = base64.b64encode(hashlib.sha256(data).digest()).decode()
        told = {"ContentType": kind, "ChecksumSHA256": checksum}
        bucket.call("put_object", Key=place, Body=data, **told)

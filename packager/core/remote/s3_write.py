"""Requests that write to a bucket, with failures explained."""

from __future__ import annotations

import hashlib
import mimetypes
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any

from artifact_cache.s3.buckets import list_pages
from artifact_cache.s3.client import call_s3
from artifact_cache.s3.parts import DIGEST, checksum
from packager.core.errors import AccessDenied, OutputFailed, ProtocolFailed, Unavailable
from packager.core.references import BucketPlace
from packager.core.remote.s3 import S3Refused, explained, s3_client

_FULL = frozenset({"QuotaExceeded", "XMinioStorageFull", "InsufficientStorage", "StorageFull"})
KMS_KEY = "PACKAGER_S3_KMS_KEY"  # variable: the key that S3 encrypts what is written with
_ENCRYPTED = frozenset({"put_object", "create_multipart_upload"})
_WRITE = "s3:ListBucket, s3:GetObject, s3:PutObject, s3:DeleteObject, s3:AbortMultipartUpload"


class UploadGone(Unavailable):
    """An upload in parts that was begun is not there any more."""

    def __init__(self, bucket: str) -> None:
        super().__init__(
            f"bucket {bucket!r} has forgotten an upload", hint="run again: it is begun anew"
        )


class WritableBucket:
    """A bucket, through boto3. Safe to use from several threads."""

    def __init__(self, name: str, client: Any | None = None) -> None:
        self.name = name
        self._client = client
        self._making = threading.Lock()

    def call(self, operation: str, **request: Any) -> Any:
        """Send one request; boto3 tries again where that may help.

        Raises `UploadGone`, `NotFound`, `AccessDenied`, `OutputFailed` where the bucket is full,
        `Unavailable` and `ProtocolFailed`.
        """
        with self._making:
            self._client = self._client or s3_client()
        from botocore.exceptions import ClientError

        if operation in _ENCRYPTED and (kms_key := os.environ.get(KMS_KEY)):
            request = {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": kms_key} | request
        try:
            with explained(self.name, None):
                try:
                    return call_s3(self._client, operation, Bucket=self.name, **request)
                except ClientError as error:
                    self._raise_own(error.response)
                    raise
        except AccessDenied as error:
            if isinstance(error, S3Refused) or not isinstance(error.__cause__, ClientError):
                raise  # the reason is known, or credentials are missing
            raise AccessDenied(error.message, hint=f"the credentials need {_WRITE}") from error

    def put(self, key: str, data: bytes, kind: str = "", *, sha256: str = "") -> Any:
        """Write a small object whole, with its checksum."""
        digest = sha256 or hashlib.sha256(data).hexdigest()
        return self.call(
            "put_object",
            Key=key,
            Body=data,
            ContentType=kind or "application/octet-stream",
            ChecksumSHA256=checksum(bytes.fromhex(digest)),
            Metadata={DIGEST: digest},
        )

    def pages(self, prefix: str) -> Iterator[dict[str, Any]]:
        """Yield the pages of a listing; raises as `call` does."""
        with explained(self.name, None):
            yield from list_pages(self.call, Prefix=prefix)

    def read(self, key: str, max_bytes: int) -> bytes:
        """Return a small object's bytes."""
        answer = self.call("get_object", Key=key)
        with explained(self.name, None), closing(answer["Body"]) as body:
            data: bytes = body.read(max_bytes + 1)
        if len(data) > max_bytes:
            raise ProtocolFailed(
                f"'s3://{self.name}/{key}' has more than {max_bytes} bytes",
                hint="remove it, or choose another prefix",
            )
        return data

    def _raise_own(self, answer: dict[str, Any]) -> None:
        code = str(answer.get("Error", {}).get("Code", ""))
        status = answer.get("ResponseMetadata", {}).get("HTTPStatusCode")
        if code == "NoSuchUpload":
            raise UploadGone(self.name)
        if code in _FULL or status == 507:
            raise OutputFailed(
                f"bucket {self.name!r} is full", hint="free some space, or choose another bucket"
            )


def put_files(at: BucketPlace, files: Mapping[str, bytes], client: Any | None = None) -> None:
    """Write each file to the bucket, its name behind the key; "" is the key itself.

    Raises what writing to a bucket does (`WritableBucket.call`).
    """
    bucket = WritableBucket(at.bucket, client)
    for name, data in files.items():
        place = f"{at.key.rstrip('/')}/{name}" if name else at.key
        bucket.put(place, data, mimetypes.guess_type(place)[0] or "")

"""Models below a prefix of an S3 bucket, read while the image is written.

Each object is pinned as it was listed.  Small files pass through a temporary
directory, to be checked; every file's bytes are read from S3 again when its
layer is written, and then must still be those of the listing.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from packager.core.image import RemoteRange
from packager.core.model import ModelFiles, ModelRef, TensorInfo
from packager.core.references import BucketReference, ModelReference
from packager.errors import ModelRefused, NotFound, ProtocolFailed
from packager.images.oci import LARGEST_BLOB
from packager.models.load import load_model
from packager.models.naming import name_of_prefix
from packager.models.reference import bucket_of
from packager.models.remote_headers import read_headers, read_remote_shard
from packager.models.rules import ListedFile
from packager.models.walk import MAX_FILES, Found, plain_file
from packager.remote.addresses import S3Address
from packager.remote.s3 import S3Reader, explained, s3_client


class S3Source:
    """Finds a model by `s3://BUCKET/PREFIX`. The result has its name, and not where it is."""

    name = "s3"

    def __init__(
        self, *, client: Any | None = None, headers_only: bool = False, is_draft: bool = False
    ) -> None:
        self._client = client
        self._headers_only = headers_only
        self._is_draft = is_draft

    def facts(self, reference: ModelReference) -> ModelFiles:
        """List, check what is small, and read headers; every file stays in the bucket."""
        client = self._client or s3_client()
        place = bucket_of(reference)
        name = name_of_prefix(place.bucket, place.prefix)
        objects = _list(client, place)
        reader = S3Reader(client)
        with TemporaryDirectory(prefix="packager-") as scratch:
            root = Path(os.path.realpath(scratch))

            def fetch(paths: tuple[str, ...]) -> Mapping[str, Found]:
                # Numbers for names: nothing in a bucket decides where we write.
                places = {path: root / str(number) for number, path in enumerate(paths)}
                for path, place in places.items():
                    with place.open("wb") as stream:
                        for chunk in reader.read(_whole(objects[path])):
                            stream.write(chunk)
                return {path: plain_file(place, path) for path, place in places.items()}

            return load_model(
                ModelRef(source="s3", name=name),
                {path: ListedFile(size=found.size) for path, found in objects.items()},
                fetch,
                headers=_S3Headers(reader, objects),
                for_plan=self._headers_only,
                is_draft=self._is_draft,
            )


class _S3Headers:
    """Files of one listing, left in the bucket."""

    def __init__(self, reader: S3Reader, objects: Mapping[str, S3Address]) -> None:
        self._reader = reader
        self._objects = objects

    def tensors_of(self, files: tuple[str, ...]) -> Mapping[str, tuple[TensorInfo, ...]]:
        return read_headers(files, self._tensors)

    def content(self, path: str) -> RemoteRange:
        return _whole(self._objects[path])

    def beginning(self, path: str, length: int) -> bytes:
        found = self._objects[path]
        part = RemoteRange(url=found.url, offset=0, length=min(length, found.size))
        return b"".join(self._reader.read(part))

    def _tensors(self, file: str) -> tuple[TensorInfo, ...]:
        found = self._objects[file]

        def read(offset: int, length: int) -> bytes:
            part = RemoteRange(url=found.url, offset=offset, length=length)
            return b"".join(self._reader.read(part))

        return read_remote_shard(file, found.size, read)


def _list(client: Any, reference: BucketReference) -> Mapping[str, S3Address]:
    """Return the objects below the prefix by their paths in the model."""
    bucket, prefix = reference.bucket, reference.prefix
    objects: dict[str, S3Address] = {}
    with explained(bucket, None):
        pages = client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
        for page in pages:
            for found in page.get("Contents", ()):
                listed = _listed(bucket, found)
                if listed.key.endswith("/") and listed.size == 0:
                    continue  # a directory, as consoles make them
                if len(objects) == MAX_FILES:
                    raise ModelRefused(
                        f"{reference.text!r} holds more than {MAX_FILES} objects",
                        hint="give the prefix of one model, not one above it",
                    )
                objects[listed.key.removeprefix(prefix)] = listed
    if not objects:
        raise NotFound(
            f"there is nothing below {reference.text!r}",
            hint=f"`aws s3 ls {reference.text.rstrip('/')}/` shows what is there",
        )
    return objects


def _listed(bucket: str, found: Mapping[str, Any]) -> S3Address:
    """Read one row of a listing; servers that leave fields out exist."""
    key, size, etag = found.get("Key"), found.get("Size"), found.get("ETag")
    modified = found.get("LastModified")
    if (
        not (isinstance(key, str) and key and isinstance(etag, str) and etag)
        or not (isinstance(size, int) and 0 <= size <= LARGEST_BLOB)
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
        modified_us = 0  # before or after all time that can be told
    return S3Address(bucket=bucket, key=key, size=size, etag=etag, modified_us=modified_us)


def _whole(found: S3Address) -> RemoteRange:
    return RemoteRange(url=found.url, offset=0, length=found.size)

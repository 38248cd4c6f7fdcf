"""Models below a prefix of an S3 bucket, read while the image is written.

Each object is pinned as it was listed.  Small files pass through a temporary
directory, to be checked; every file's bytes are read from S3 again when its
layer is written, and then must still be those of the listing.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from artifact_cache.s3.buckets import bucket_name
from packager.core.errors import ModelRefused, NotFound
from packager.core.image import RemoteRange
from packager.core.model import ModelFiles, ModelRef, TensorInfo
from packager.core.references import BucketReference, ModelReference
from packager.core.remote.addresses import S3Address
from packager.core.remote.s3 import S3Reader, list_bucket, s3_client, whole_object
from packager.models.load import load_model
from packager.models.naming import name_of_prefix
from packager.models.reference import bucket_of
from packager.models.remote_headers import read_headers, read_remote_shard
from packager.models.rules import ListedModelFile
from packager.models.walk import MAX_FILES, Found, plain_file


class S3Source:
    """Finds a model by `s3://BUCKET/PREFIX`. The result has its name, and not where it is."""

    name = "s3"

    def __init__(
        self,
        *,
        client: Any | None = None,
        headers_only: bool = False,
        is_draft: bool = False,
        is_adapter: bool = False,
    ) -> None:
        self._client = client
        self._headers_only = headers_only
        self._is_draft = is_draft
        self._is_adapter = is_adapter

    def facts(self, reference: ModelReference) -> ModelFiles:
        """List, check what is small, and read headers; every file stays in the bucket."""
        client = self._client or s3_client()
        place = bucket_of(reference)
        name = name_of_prefix(bucket_name(place.bucket), place.prefix)
        objects = list_objects(client, place)
        reader = S3Reader(client)
        with TemporaryDirectory(prefix="packager-") as scratch:
            root = Path(os.path.realpath(scratch))

            def fetch(paths: tuple[str, ...]) -> Mapping[str, Found]:
                # Numbers for names: the names in a bucket must not decide local paths.
                places = {path: root / str(number) for number, path in enumerate(paths)}
                for path, place in places.items():
                    with place.open("wb") as stream:
                        for chunk in reader.read(whole_object(objects[path])):
                            stream.write(chunk)
                return {path: plain_file(place, path) for path, place in places.items()}

            return load_model(
                ModelRef(source="s3", name=name),
                {path: ListedModelFile(size=found.size) for path, found in objects.items()},
                fetch,
                headers=_S3Headers(reader, objects),
                for_plan=self._headers_only,
                is_draft=self._is_draft,
                is_adapter=self._is_adapter,
            )


class _S3Headers:
    """Files of one listing, left in the bucket."""

    def __init__(self, reader: S3Reader, objects: Mapping[str, S3Address]) -> None:
        self._reader = reader
        self._objects = objects

    def tensors_of(self, files: tuple[str, ...]) -> Mapping[str, tuple[TensorInfo, ...]]:
        return read_headers(files, self._tensors)

    def content(self, path: str) -> RemoteRange:
        return whole_object(self._objects[path])

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


def list_objects(client: Any, reference: BucketReference) -> Mapping[str, S3Address]:
    """Return the objects below the prefix by their paths in the model."""
    objects: dict[str, S3Address] = {}
    for listed in list_bucket(client, reference.bucket, reference.prefix):
        if len(objects) == MAX_FILES:
            raise ModelRefused(
                f"{reference.text!r} holds more than {MAX_FILES} objects",
                hint="give the prefix of one model, not one above it",
            )
        objects[listed.key.removeprefix(reference.prefix)] = listed
    if not objects:
        raise NotFound(
            f"there is nothing below {reference.text!r}",
            hint=f"`aws s3 ls {reference.text.rstrip('/')}/` shows what is there",
        )
    return objects

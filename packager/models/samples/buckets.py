"""Data in buckets: fetched into a temporary directory, read there, and gone again.

`s3://BUCKET/KEY` is an object, else all below it as if it were a directory, else all whose keys
begin so, as the service takes a prefix.  `manifest:s3://BUCKET/KEY` is a list of objects as
SageMaker's jobs take it: `[{"prefix": "s3://BUCKET/PREFIX/"}, "a.jsonl", …]`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any

from packager.core.documents import NotStrict, parse_json, shorten
from packager.core.errors import NotFound, UsageError
from packager.core.references import BucketPlace, parse_bucket_place
from packager.core.remote.addresses import S3Address
from packager.core.remote.s3 import S3Reader, list_bucket, s3_client, whole_object
from packager.core.text import escape
from packager.core.units import GIB, MIB, decimal

MANIFEST = "manifest:"
MOST_OBJECTS = 10_000
MOST_BYTES = 20 * GIB  # of all objects together: they are on this machine's disk for a while
LARGEST_MANIFEST = 16 * MIB


def too_much_data(reference: str, what: str) -> UsageError:
    """Return an error: a place in a bucket holds more than is fetched."""
    return UsageError(
        f"{shorten(reference, 200)} holds more than {what}",
        hint="name one file, or a prefix with the texts alone",
        code="TooMuchData",
    )


def is_bucket_data(reference: str) -> bool:
    """Check whether a reference of data points to a bucket."""
    return parse_bucket_place(reference.removeprefix(MANIFEST)) is not None


@contextmanager
def fetched(
    reference: str, suffixes: Collection[str], *, client: Any | None = None
) -> Iterator[list[tuple[str, Path]]]:
    """Fetch the files of a reference with one of the suffixes; they are there inside the block.

    Yields each with the name to show.  Raises `NotFound`, `UsageError`, and what S3 raises.
    """
    connected = client or s3_client()
    reader = S3Reader(connected)
    if reference.startswith(MANIFEST):
        chosen = _listed_by_manifest(connected, reader, reference)
    else:
        chosen = _objects(connected, _place(reference), reference)
        if len(chosen) > 1:
            chosen = {name: one for name, one in chosen.items() if _suffix(name) in suffixes}
    if not chosen:
        raise NotFound(
            f"there is no data at {shorten(reference, 200)}",
            hint=f"files end with {', '.join(suffixes)}",
        )
    if sum(one.size for one in chosen.values()) > MOST_BYTES:
        raise too_much_data(reference, decimal(MOST_BYTES))
    with TemporaryDirectory(prefix="packager-data-") as scratch:
        files = []
        for number, (name, one) in enumerate(sorted(chosen.items())):
            # A number for a name: the names in a bucket must not decide local paths.
            path = Path(scratch, f"{number}{_suffix(name) if _suffix(name) in suffixes else ''}")
            with path.open("wb") as stream:
                stream.writelines(reader.read(whole_object(one)))
            files.append((escape(name), path))
        yield files


def _objects(client: Any, place: BucketPlace, reference: str) -> dict[str, S3Address]:
    """Return the objects of a place by their names below it."""
    key = place.key
    if key and not key.endswith("/"):
        alone = next(iter(list_bucket(client, place.bucket, key)), None)
        if alone is not None and alone.key == key:  # the first of a listing, where it is there
            return {PurePosixPath(key).name: alone}
        below = _below(client, place.bucket, f"{key}/", reference)
        return below or _below(client, place.bucket, key, reference)
    return _below(client, place.bucket, key, reference)


def _below(client: Any, bucket: str, prefix: str, reference: str) -> dict[str, S3Address]:
    directory = prefix[: prefix.rfind("/") + 1]
    found: dict[str, S3Address] = {}
    for one in list_bucket(client, bucket, prefix):
        if len(found) == MOST_OBJECTS:
            raise too_much_data(reference, f"{MOST_OBJECTS:,} objects")
        found[one.key.removeprefix(directory)] = one
    return found


def _listed_by_manifest(client: Any, reader: S3Reader, reference: str) -> dict[str, S3Address]:
    place = _place(reference.removeprefix(MANIFEST))
    one = _object(client, place)
    if one.size > LARGEST_MANIFEST:
        raise too_much_data(reference, decimal(LARGEST_MANIFEST))
    try:
        document = parse_json(b"".join(reader.read(whole_object(one))), max_bytes=LARGEST_MANIFEST)
        prefix, names = _parts(document)
    except NotStrict as why:
        raise UsageError(
            f"{shorten(reference, 200)} is not a manifest: {why}",
            hint='write [{"prefix": "s3://BUCKET/PREFIX/"}, "a.jsonl", …]',
        ) from why
    if len(names) > MOST_OBJECTS:
        raise too_much_data(reference, f"{MOST_OBJECTS:,} objects")
    wanted = {name: BucketPlace(bucket=prefix.bucket, key=prefix.key + name) for name in names}
    return {name: _object(client, place) for name, place in wanted.items()}


def _parts(document: object) -> tuple[BucketPlace, list[str]]:
    """Return prefix and names of a manifest; raises `NotStrict`."""
    if not isinstance(document, list) or not document or not isinstance(document[0], dict):
        raise NotStrict("it does not begin with an object that has a prefix")
    head, *names = document
    text = head.get("prefix")
    prefix = parse_bucket_place(text) if isinstance(text, str) else None
    if prefix is None or not prefix.bucket:
        raise NotStrict("its prefix is not s3://BUCKET/PREFIX")
    if not names or not all(isinstance(name, str) and name for name in names):
        raise NotStrict("behind its prefix there are not names of objects")
    return prefix, names


def _object(client: Any, place: BucketPlace) -> S3Address:
    found = next(iter(list_bucket(client, place.bucket, place.key)), None)
    if found is None or found.key != place.key:
        raise NotFound(
            f"there is no {shorten(f's3://{place.bucket}/{place.key}', 200)}",
            hint="check the name, and AWS_ENDPOINT_URL",
        )
    return found


def _place(text: str) -> BucketPlace:
    found = parse_bucket_place(text)
    if found is None or not found.bucket:
        raise UsageError(f"{shorten(text, 200)} names no bucket", hint="write s3://BUCKET/PREFIX")
    return found


def _suffix(name: str) -> str:
    return PurePosixPath(name).suffix.lower()
